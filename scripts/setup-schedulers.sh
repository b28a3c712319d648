#!/usr/bin/env bash
# Slurm, Grid Engine and PBS on this machine only, for tests: unattended, idempotent, stopped by the folder they were
# started with.  As root, or as a user with sudo, whose jobs they then run and whose word they obey.
#
#   bash scripts/setup-schedulers.sh install [OPENPBS]   Debian's packages; from a source folder (or its git), OpenPBS too
#   bash scripts/setup-schedulers.sh start DIR [PID]     start Slurm and Grid Engine; prints the folder of their clients
#   bash scripts/setup-schedulers.sh start-pbs DIR [PID] start PBS, where it is installed; prints the folder of its clients
#   bash scripts/setup-schedulers.sh stop DIR            stop what was started with DIR
#
# OpenPBS (github.com/openpbs/openpbs, v23.06.06) is in no Debian release: it is built into OPENPBS_PREFIX (/opt/pbs).
# Both live in a network namespace of their own that has a loopback and nothing else: no port is open on this machine.
# DIR/bin holds the clients (sbatch, qsub, …), which enter that namespace by DIR/enter: nsenter with the rights to do so,
# for the user who started them alone.  Slurm has two nodes, node1 and node2: this
# machine under two names.  Grid Engine has one, PBS two (pbs1, pbs2).  Each node has 8 cores for jobs, which mostly
# wait, and one made-up GPU.  A job that is told to end has 30 seconds, as on clusters.  Slurm takes the nodes of jobs
# in the partition "spare" for those of "gpu", after 30 seconds.  DIR/small holds a disk of 1 MB for each of them.
# With a PID they are stopped when that process has ended, however it ended.
# NODE_BASH=PROGRAM is the nodes' /bin/bash, such as the old one of a cluster.
# Configuration and state of both are below DIR; a Slurm or Grid Engine that is already set up here is left alone.
set -euo pipefail

fail() { printf '%s\n' "schedulers: $*" >&2; exit 1; }
alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

user=${SUDO_USER:-root}
slots=8
packages=(slurmctld slurmd slurm-client munge gridengine-master gridengine-exec gridengine-client)
slurm_clients=(sbatch squeue sacct scontrol scancel srun sinfo)
# shellcheck disable=SC2016  # the client's own shell expands it
kept='${TMPDIR:+"TMPDIR=$TMPDIR"}'
pbs_clients=(qsub qstat qdel qalter qmgr pbsnodes qrerun qhold qrls qsig qterm)
prefix=${OPENPBS_PREFIX:-/opt/pbs}
pbs_needs=(gcc g++ make libtool autoconf automake swig libhwloc-dev libx11-dev libxt-dev libxext-dev libxft-dev
  libedit-dev libical-dev ncurses-dev perl postgresql postgresql-contrib postgresql-server-dev-all python3-dev tcl-dev
  tk-dev libexpat-dev libssl-dev zlib1g-dev)
grid_clients=(qsub qstat qacct qdel qalter qrsh qrls qconf qmod qhost)

install_packages() {
  local package missing=()
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  export DEBIAN_FRONTEND=noninteractive
  local get=(apt-get -qq -y -o DPkg::Lock::Timeout=300 -o DPkg::Use-Pty=0 install --no-install-recommends)
  # without /etc/services the set-up of gridengine-master fails and does not say so
  "${get[@]}" netbase procps iproute2 libcap2-bin debconf </dev/null >/dev/null
  printf '%s\n' "gridengine-common shared/gridenginemaster string $(hostname)" \
    "gridengine-common shared/gridenginecell string default" \
    "gridengine-common shared/gridengineconfig boolean true" | debconf-set-selections
  # no daemon may start by itself, as it would listen to the world; msmtp-mta keeps a mail server out
  if ! [ -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  "${get[@]}" msmtp-mta "${missing[@]}" </dev/null >/dev/null
}

# A few minutes.  Python 3.11 has no eval.h any more, and `make install` leaves pbs_iff without the bit that it needs.
build_pbs() {
  local source=$1 work
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${pbs_needs[@]}" </dev/null >/dev/null
  work=$(mktemp -d)
  if git -C "$source" rev-parse -q --verify 'v23.06.06^{commit}' >/dev/null 2>&1; then
    git -C "$source" archive v23.06.06 | tar -x -C "$work"
  else
    cp -r "$source/." "$work"
  fi
  (
    cd "$work"
    sed -i '/#include <eval.h>/d' src/lib/Libpython/*.c
    ./autogen.sh
    ./configure --prefix="$prefix" PYTHON=/usr/bin/python3
    nice make -j"$(nproc)"
    make install
  ) >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log" >&2; fail "OpenPBS was not built"; }
  chmod 4755 "$prefix/sbin/pbs_iff" "$prefix/sbin/pbs_rcp"
  rm -rf "$work"
}

name_of() { printf 'envbuild-%s\n' "$(printf '%s' "$1" | md5sum | cut -c 1-8)"; }

inside() { nsenter --net="/run/netns/$space" -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# a function cannot be run by timeout
limited() { if [ "$(type -t "$1")" = function ]; then "$@"; else timeout 5 "$@"; fi; }

wait_for() {
  local end=$((SECONDS + 30))
  until limited "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "did not start: $*"
    sleep 0.1
  done
}

# Capabilities of the file, not of the user: what it starts has them no more (capabilities(7)).  Of such a program the
# C library takes TMPDIR away (ld.so(8)), so clients get it back.
write_enter() {
  install -o "$user" -m 500 "$(command -v nsenter)" "$1/enter"
  setcap cap_sys_admin,cap_sys_chroot,cap_sys_ptrace+ep "$1/enter"
}

write_clients() {
  local dir=$1 client
  mkdir -p "$dir/bin"
  for client in "${slurm_clients[@]}" "${grid_clients[@]}"; do
    # shellcheck disable=SC2016  # the client's own shell expands it
    printf '#!/bin/sh\nSLURM_CONF=%s SGE_ROOT=%s exec %s --net=/run/netns/%s -- env %s /usr/bin/%s "$@"\n' \
      "$dir/slurm.conf" "$dir/grid/root" "$dir/enter" "$space" "$kept" "$client" >"$dir/bin/$client"
    chmod 755 "$dir/bin/$client"
  done
}

# PBS and Grid Engine begin jobs with a login shell.  What this machine does at a login is no part of the tests: pyenv,
# for one, takes a lock, and a job that is killed meanwhile leaves it behind, so that every later login waits a minute.
write_node_mounts() {
  local dir=$1 home
  home=$(getent passwd "$user" | cut -d : -f 6)
  : >"$dir/empty"
  # shellcheck disable=SC2016  # the nodes' shell expands it
  printf 'for file in .bash_profile .bash_login .profile; do\n  [ ! -e "%s/$file" ] || mount --bind "%s" "%s/$file"\ndone\n' \
    "$home" "$dir/empty" "$home" >"$dir/node-mounts"
  [ -z "${NODE_BASH-}" ] || printf 'mount --bind "%s" "%s"\n' "$NODE_BASH" "$(realpath /bin/bash)" >>"$dir/node-mounts"
}

start_slurm() {
  local dir=$1 host memory node
  host=$(hostname -s) memory=$(awk '/MemTotal/ { print int($2 / 1024 * 0.7) }' /proc/meminfo)
  install -d -m 755 "$dir/munge"
  if ! alive "$dir/munge/munged.pid"; then
    [ -s "$dir/munge/key" ] || head -c 128 /dev/urandom >"$dir/munge/key"
    chmod 400 "$dir/munge/key"
    inside /usr/sbin/munged --force --socket="$dir/munge/socket" \
      --key-file="$dir/munge/key" --pid-file="$dir/munge/munged.pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
  fi
  # whom slurmctld runs as may change partitions and nodes
  install -d -o "$user" "$dir/slurm" "$dir/slurm/state"
  printf '%s\n' '127.0.0.1 localhost' "127.0.0.1 $host" '10.98.0.1 node1' '10.98.0.2 node2' >"$dir/hosts"
  cat >"$dir/slurm.conf" <<CONF
ClusterName=envbuild
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/slurm/state
SlurmdSpoolDir=$dir/slurm/spool-%n
SlurmctldPidFile=$dir/slurm/slurmctld.pid
SlurmdPidFile=$dir/slurm/%n.pid
SlurmctldLogFile=$dir/slurm/slurmctld.log
SlurmdLogFile=$dir/slurm/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerNode=1024
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
ReturnToService=2
MinJobAge=600
GresTypes=gpu
NodeName=node1 NodeAddr=10.98.0.1 Port=6821 CPUs=$slots RealMemory=$memory Gres=gpu:tesla:1 State=UNKNOWN
NodeName=node2 NodeAddr=10.98.0.2 Port=6822 CPUs=$slots RealMemory=$memory Gres=gpu:tesla:1 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=gpu Nodes=node[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=10 PreemptMode=OFF
PartitionName=spare Nodes=node[1-2] MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=1 GraceTime=30
CONF
  echo 'Name=gpu Type=tesla File=/dev/null' >"$dir/gres.conf"
  alive "$dir/slurm/slurmctld.pid" || inside /usr/sbin/slurmctld -f "$dir/slurm.conf"
  wait_for sh -c "'$dir/bin/scontrol' ping | grep -q 'is UP'"
  # a node is told by its host name, so each daemon gets a name of its own and a list of all names
  for node in node1 node2; do
    # shellcheck disable=SC2016  # the inner shell expands its own arguments
    alive "$dir/slurm/$node.pid" || inside unshare --uts --mount sh -c \
      'hostname "$1" && mount --bind "$2/hosts" /etc/hosts && . "$2/node-mounts" && exec /usr/sbin/slurmd -f "$2/slurm.conf"' sh "$node" "$dir"
  done
  wait_for sh -c "[ \"\$('$dir/bin/sinfo' -h -N -p gpu -o %T | grep -cE '^(idle|mixed|allocated)$')\" = 2 ]"
}

# A cell of its own: the one that Debian's package made keeps its jobs, and two of these may run at the same time.
make_cell() {
  local root=$1/grid/root spool=$1/grid/spool name source=/usr/share/gridengine
  [ ! -e "$root/default/common/bootstrap" ] || return 0
  mkdir -p "$root/default/common" "$spool/qmaster/job_scripts" "$spool/execd"
  for name in bin lib util utilbin; do ln -sfn "/var/lib/gridengine/$name" "$root/$name"; done
  # 127.0.0.1 is called localhost: make every name of this machine one host
  printf 'localhost %s\n' "$(hostname)" >"$root/default/common/host_aliases"
  echo localhost >"$root/default/common/act_qmaster"
  sed -e "s#^admin_user .*#admin_user none#" -e "s#^spooling_params .*#spooling_params $spool/db#" \
    -e "s#^qmaster_spool_dir .*#qmaster_spool_dir $spool/qmaster#" \
    "$source/default-bootstrap" >"$root/default/common/bootstrap"
  # tests run as root, and wait until a job's first run is cleared away
  sed -e 's/^load_report_time .*/load_report_time 00:00:05/' -e 's/^min_uid .*/min_uid 0/' -e 's/^min_gid .*/min_gid 0/' -e "s#^execd_spool_dir .*#execd_spool_dir $spool/execd#" \
    "$source/default-configuration" >"$1/grid/configuration"
  mkdir -p "$spool/db"
  name=/usr/lib/gridengine
  inside SGE_ROOT="$root" "$name/spoolinit" berkeleydb libspoolb "$spool/db" init
  inside SGE_ROOT="$root" "$name/spooldefaults" configuration "$1/grid/configuration"
  inside SGE_ROOT="$root" "$name/spooldefaults" complexes "$source/util/resources/centry"
  inside SGE_ROOT="$root" "$name/spooldefaults" usersets "$source/util/resources/usersets"
  inside SGE_ROOT="$root" "$name/spooldefaults" managers root "$user"
}

runs() { ip netns pids "$space" | xargs -r ps -o comm= -p | grep -qx "$1"; }

start_grid_engine() {
  local dir=$1
  make_cell "$dir" >"$dir/grid.log"
  # the daemons' environment would leak into jobs, so it is empty
  runs sge_qmaster || inside SGE_ROOT="$dir/grid/root" /usr/sbin/sge_qmaster
  PATH=$dir/bin:$PATH
  wait_for qconf -sh
  configure_grid_engine "$dir" >>"$dir/grid.log"
  # shellcheck disable=SC2016  # the inner shell expands its own arguments
  runs sge_execd || inside SGE_ROOT="$dir/grid/root" unshare --mount sh -c '. "$1/node-mounts" && exec /usr/sbin/sge_execd' sh "$dir"
  wait_for sh -c "qstat -f | grep -q 'all.q@localhost.* lx-amd64 *$'"
}

configure_grid_engine() {
  local dir=$1/grid
  mkdir -p "$dir"
  qconf -ss 2>/dev/null | grep -qx localhost || qconf -as localhost
  qconf -sh | grep -qx localhost || qconf -ah localhost
  qconf -sc | sed '/^gpu /d' >"$dir/complex"
  echo 'gpu gpu INT <= YES JOB 0 0' >>"$dir/complex"
  qconf -Mc "$dir/complex"
  printf '%s\n' 'hostname localhost' 'load_scaling NONE' "complex_values slots=$slots,gpu=1" 'user_lists NONE' \
    'xuser_lists NONE' 'projects NONE' 'xprojects NONE' 'usage_scaling NONE' 'report_variables NONE' >"$dir/host"
  if qconf -sel | grep -qx localhost; then qconf -Me "$dir/host"; else qconf -Ae "$dir/host"; fi
  printf '%s\n' 'pe_name smp' 'slots 999' 'user_lists NONE' 'xuser_lists NONE' 'start_proc_args NONE' \
    'stop_proc_args NONE' "allocation_rule \$pe_slots" 'control_slaves FALSE' 'job_is_first_task TRUE' \
    'urgency_slots min' 'accounting_summary FALSE' 'qsort_args NONE' >"$dir/pe"
  qconf -spl 2>/dev/null | grep -qx smp || qconf -Ap "$dir/pe"
  qconf -ssconf | sed -e 's/^schedule_interval .*/schedule_interval 0:0:2/' -e 's/^flush_submit_sec .*/flush_submit_sec 1/' \
    -e 's/^flush_finish_sec .*/flush_finish_sec 1/' >"$dir/sched"
  qconf -Msconf "$dir/sched"
  if ! qconf -sql 2>/dev/null | grep -qx all.q; then
    qconf -sq | sed -e 's/^qname .*/qname all.q/' -e 's/^hostlist .*/hostlist localhost/' -e "s/^slots .*/slots $slots/" \
      -e 's/^pe_list .*/pe_list smp/' -e 's#^shell  *.*#shell /bin/bash#' -e 's/^notify .*/notify 00:00:30/' \
      -e 's/^shell_start_mode .*/shell_start_mode unix_behavior/' -e 's/^load_thresholds .*/load_thresholds NONE/' >"$dir/queue"
    qconf -Aq "$dir/queue"
  fi
}

# Who starts them may be killed, and stops nothing then.
stop_after() {
  [ -n "$2" ] || return 0
  # shellcheck disable=SC2016  # the inner shell expands its own arguments
  setsid sh -c 'while kill -0 "$1" 2>/dev/null; do sleep 1; done; exec bash "$2" stop "$3"' \
    sh "$2" "$(realpath "${BASH_SOURCE[0]}")" "$1" </dev/null >/dev/null 2>&1 &
}

# A disk that tests fill.  Nodes have mounts of their own, and see those that are there when they start.
mount_small_disk() {
  mkdir -p "$1"
  mountpoint -q "$1" || mount -t tmpfs -o size=1m tmpfs "$1"
}

pbs_in() {
  local node=$1
  shift
  nsenter -t "$(cat "$pbs_dir/$node.pid")" -n -u -m -- env -i PATH="$prefix/bin:/usr/sbin:/usr/bin:/sbin:/bin" LANG=C.UTF-8 "$@"
}

# Two nodes in two networks that are joined by a cable; each has an /etc/pbs.conf of its own, and PBS_HOME lies below a
# folder that only root may write to, as PBS insists on.
start_pbs() {
  local dir=$1 node number home server client
  [ -x "$prefix/bin/qsub" ] || fail "no OpenPBS in $prefix (install OPENPBS builds it)"
  pbs_dir=$dir/pbs home=/var/spool/$space-pbs
  stop_after "$dir" "${2-}"
  mount_small_disk "$dir/small/pbs"
  mkdir -p "$pbs_dir/bin" "$home"
  write_enter "$dir"
  write_node_mounts "$dir"
  # qsub leaves a process behind that serves the next one; it is found by a name in this folder, and must be this PBS's own
  install -d -m 1777 "$home/tmp"
  printf '%s\n' '127.0.0.1 localhost' '10.96.0.1 pbs1' '10.96.0.2 pbs2' >"$pbs_dir/hosts"
  # a job begins in its user's home folder and login shell, and nobody has neither
  sed '/^nobody:/s#:[^:]*:[^:]*$#:/:/bin/bash#' /etc/passwd >"$pbs_dir/passwd"
  [ -e /etc/pbs.conf ] || : >/etc/pbs.conf
  mkdir -p /run/postgresql
  for number in 1 2; do
    node=pbs$number server=$((number == 1))
    ip netns add "$space-$number"
    ip -n "$space-$number" link set lo up
    printf '%s\n' PBS_EXEC="$prefix" PBS_SERVER=pbs1 PBS_START_SERVER=$server PBS_START_SCHED=$server \
      PBS_START_COMM=$server PBS_START_MOM=1 PBS_HOME="$home/$number" PBS_CORE_LIMIT=0 PBS_SCP=/bin/cp PBS_TMPDIR="$home/tmp" >"$pbs_dir/$node.conf"
    # shellcheck disable=SC2016  # the inner shell expands its own arguments
    setsid nsenter --net="/run/netns/$space-$number" unshare --uts --mount sh -c \
      'hostname "$1" && mount --bind "$2/hosts" /etc/hosts && mount --bind "$2/$1.conf" /etc/pbs.conf && mount --bind "$2/passwd" /etc/passwd && . "$3/node-mounts" &&
       mount -t tmpfs tmpfs /run/postgresql && chmod 1777 /run/postgresql && exec sleep infinity' sh "$node" "$pbs_dir" "$dir" \
      </dev/null >/dev/null 2>&1 &
    echo $! >"$pbs_dir/$node.pid"
  done
  local cable=${space##*-}
  ip link add "a$cable" netns "$space-1" type veth peer name "b$cable" netns "$space-2"
  ip -n "$space-1" address add 10.96.0.1/24 dev "a$cable"
  ip -n "$space-2" address add 10.96.0.2/24 dev "b$cable"
  ip -n "$space-1" link set "a$cable" up
  ip -n "$space-2" link set "b$cable" up
  wait_for pbs_ready pbs1
  wait_for pbs_ready pbs2
  # what PBS says goes into a file: whoever starts it wants to know why it did not
  trap 'tail -n 5 "$pbs_dir/log" >&2' ERR
  set -E
  pbs_in pbs1 "$prefix/libexec/pbs_postinstall" server 23.06.06 "$prefix" "$home/1" "" sameconf >"$pbs_dir/log" 2>&1
  pbs_in pbs2 "$prefix/libexec/pbs_postinstall" execution 23.06.06 "$prefix" "$home/2" "" sameconf >>"$pbs_dir/log" 2>&1
  sed -i 's/^resources: "/resources: "ngpus, /' "$home/1/sched_priv/sched_config"
  rm -f /etc/profile.d/pbs.sh /etc/profile.d/pbs.csh /lib/systemd/system/pbs.service /etc/init.d/pbs
  for number in 1 2; do
    # shellcheck disable=SC2016  # words of PBS
    printf '%s\n' '$clienthost pbs1' '$usecp *:/ /' '$enforce mem' '$min_check_poll 2' '$max_check_poll 5' \
      >"$home/$number/mom_priv/config"
    pbs_in "pbs$number" "$prefix/libexec/pbs_init.d" start >>"$pbs_dir/log" 2>&1
  done
  for client in "${pbs_clients[@]}"; do
    # shellcheck disable=SC2016  # the client's own shell expands it
    printf '#!/bin/sh\nexec %s -t %s -n -u -m -- env %s sh -c '"'"'cd "$0" && exec "$@"'"'"' "$PWD" %s "$@"\n' \
      "$dir/enter" "$(cat "$pbs_dir/pbs1.pid")" "$kept" "$prefix/bin/$client" >"$pbs_dir/bin/$client"
    chmod 755 "$pbs_dir/bin/$client"
  done
  wait_for "$pbs_dir/bin/qmgr" -c 'create node pbs2'
  # tests run as root, or as the user who has started this
  "$pbs_dir/bin/qmgr" -c 'set server acl_roots += root@*'
  [ "$user" = root ] || "$pbs_dir/bin/qmgr" -c "set server managers += $user@*"
  "$pbs_dir/bin/qmgr" -c 'set server job_history_enable = true'
  "$pbs_dir/bin/qmgr" -c 'create resource ngpus type=long,flag=nh' >>"$pbs_dir/log" 2>&1
  "$pbs_dir/bin/qmgr" -c 'set queue workq kill_delay = 30'
  for node in pbs1 pbs2; do
    "$pbs_dir/bin/qmgr" -c "set node $node resources_available.ngpus = 1"
    "$pbs_dir/bin/qmgr" -c "set node $node resources_available.ncpus = $slots"
  done
  wait_for sh -c "[ \"\$('$pbs_dir/bin/pbsnodes' -a | grep -c ' state = free')\" = 2 ]"
  printf '%s\n' "$pbs_dir/bin"
}

pbs_ready() { [ "$(pbs_in "$1" hostname)" = "$1" ]; }

start() {
  local dir=$1
  mkdir -p "$dir"
  stop_after "$dir" "${2-}"
  mount_small_disk "$dir/small/slurm"
  mount_small_disk "$dir/small/gridengine"
  if ! [ -e "/run/netns/$space" ]; then
    ip netns add "$space"
    ip -n "$space" link set lo up
    # the two nodes; getaddrinfo() wants an address that is not 127.* too
    ip -n "$space" address add 10.98.0.1/32 dev lo
    ip -n "$space" address add 10.98.0.2/32 dev lo
  fi
  write_enter "$dir"
  write_node_mounts "$dir"
  write_clients "$dir"
  start_slurm "$dir"
  start_grid_engine "$dir"
  printf '%s\n' "$dir/bin"
}

# Everything that runs in the namespaces was started by these schedulers.
stop() {
  local dir=$1 number disk
  pbs_dir=$dir/pbs
  if [ -e "/run/netns/$space-1" ]; then
    # PostgreSQL wants to be asked
    pbs_in pbs1 sh -c "$prefix/bin/qterm -t quick; $prefix/libexec/pbs_init.d stop" >/dev/null 2>&1 || true
    for number in 1 2; do
      empty "$space-$number"
    done
    rm -rf "/var/spool/$space-pbs"
  fi
  empty "$space"
  for disk in "$dir"/small/*; do umount --lazy "$disk" 2>/dev/null || true; done
  # what root has written goes with the folder, which is the user's to remove
  [ "$user" = root ] || ! [ -d "$dir" ] || chown -R "$user" "$dir"
}

empty() {
  local space=$1 signal
  [ -e "/run/netns/$space" ] || return 0
  for signal in TERM TERM KILL; do
    ip netns pids "$space" | xargs -r kill "-$signal" 2>/dev/null || true
    for _ in $(seq 30); do
      [ -n "$(ip netns pids "$space")" ] || break 2
      sleep 0.1
    done
  done
  ip netns delete "$space"
}

if [ "$(id -u)" != 0 ]; then exec sudo -n OPENPBS_PREFIX="$prefix" NODE_BASH="${NODE_BASH-}" bash "${BASH_SOURCE[0]}" "$@"; fi
case ${1-} in
  install)
    install_packages
    # a few minutes that are spent once
    if [ -n "${2-}" ] && ! [ -x "$prefix/sbin/pbs_iff" ]; then build_pbs "$(realpath "$2")"; fi
    ;;
  start | start-pbs | stop)
    dir=$(realpath -m "${2:?a folder is missing}")
    space=$(name_of "$dir")
    # two at once would start each daemon twice, and a second slurmctld ends the first; daemons do not hold the lock
    if [ "$1" != stop ] && [ "${LOCKED_FOLDER-}" != "$dir" ]; then
      mkdir -p "$dir"
      LOCKED_FOLDER=$dir exec flock --close "$dir/lock" bash "${BASH_SOURCE[0]}" "$@"
    fi
    "${1//-/_}" "$dir" "${3-}"
    ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
