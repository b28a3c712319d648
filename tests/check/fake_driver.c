/* Stands for libcuda.so.1 and libnvidia-ml.so.1; what it answers is set by FAKE_* variables. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int cuInit(unsigned flags) { (void)flags; return number("FAKE_INIT", 0); }
int cuDriverGetVersion(int *version) { *version = number("FAKE_CUDA", 12020); return 0; }
int cuDeviceGetCount(int *count) { *count = number("FAKE_COUNT", 1); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int size, int device) { (void)device; strncpy(name, "Fake A100", size); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int capability = number("FAKE_CAPABILITY", 80);
    (void)device;
    *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : -1;
    return 0;
}
int cuDeviceTotalMem_v2(size_t *size, int device) { (void)device; *size = (size_t)40 << 30; return 0; }

int nvmlInit_v2(void) { return number("FAKE_NVML", 0); }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    const char *version = getenv("FAKE_DRIVER");
    strncpy(text, version ? version : "535.129.03", size);
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("FAKE_COUNT", 1); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(size_t)(index + 1); return 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    (void)device;
    *current = *pending = number("FAKE_MIG", 0);
    return 0;
}

struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    static int calls;
    (void)device;
    memory->total = 40ull << 30;
    memory->used = (unsigned long long)number("FAKE_RISE", 512) * (calls++ > 0) << 20;
    return 0;
}
struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *table)
{
    (void)device;
    *count = 1;
    table[0].pid = number("FAKE_PID", (int)getpid());
    table[0].memory = 3ull << 30;
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    (void)device;
    strncpy(name, "Fake A100", size);
    return 0;
}
struct rates { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *device, struct rates *rates)
{
    (void)device;
    rates->gpu = rates->memory = number("FAKE_BUSY", 87);
    return number("FAKE_MIG", 0) ? 3 : 0;
}
