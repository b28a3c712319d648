/* A driver that shows one A100 and can do nothing: frameworks go on until they have looked for their libraries.
   Functions of the driver API, CUDA toolkit documentation. */
#include <stddef.h>
#include <string.h>

#define OK(name) int name() { return 0; }
#define SAYS(name, type, value) int name(type *out) { *out = (value); return 0; }

OK(cuInit)
OK(cuDevicePrimaryCtxSetFlags)
OK(cuDevicePrimaryCtxSetFlags_v2)
OK(cuCtxSetCurrent)
SAYS(cuDriverGetVersion, int, 12030)
SAYS(cuDeviceGetCount, int, 1)
SAYS(cuCtxGetDevice, int, 0)
SAYS(cuCtxGetCurrent, void *, (void *)8)
SAYS(cuDevicePrimaryCtxRetain, void *, (void *)8)
SAYS(cuDeviceTotalMem_v2, size_t, (size_t)40 << 30)
SAYS(cuDeviceCanAccessPeer, int, 0)

int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "A100 that is none", size); return 0; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 7, 16); return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }
int cuDeviceGetPCIBusId(char *text, int size, int device) { strncpy(text, "0000:07:00.0", size); return 0; }
int cuDeviceComputeCapability(int *major, int *minor, int device) { *major = 8; *minor = 0; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 0; return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = *total = (size_t)40 << 30; return 0; }
int cuGetErrorName(int code, const char **text) { *text = "CUDA_ERROR_OF_NO_DRIVER"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "this is no driver"; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 8 : attribute == 76 ? 0 : 1; /* COMPUTE_CAPABILITY_MAJOR, _MINOR */
  return 0;
}
