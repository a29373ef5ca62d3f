# SPDX-License-Identifier: Apache-2.0
#
# make            build/librondo.so, build/librondo.a, the tool build/rondo and, for NCCL's programs, build/compat/libnccl.so.2
# make demo       this machine and its ring, checked all-reduces, a short bench, a network trained over the ring
# make check      build and run every test; also: asan, ubsan, tsan, lint, check-layers, check-long
# make check-cudasim  what needs GPUs, over the simulated driver (tests/cudasim): plain and under each sanitizer
# make check-gpu   the same, plain, on the GPUs of this machine; bench/gpu.sh measures there
# make gpu-bundle  what that needs in one file, for a machine with a GPU and little else: build/rondo-gpu.tar.xz
# make check-verbs   links over RDMA, in an emulated guest with Soft-RoCE devices; VERBS=native: on this machine's devices
# make chaos      500 rounds of random calls with a fault among them; SEED=, ROUNDS=
# make release    the same in build/release, with kernels for every GPU since sm_75; needs nvcc
# make install    PREFIX=/usr/local LIBDIR=$PREFIX/lib DESTDIR=: library, headers, tool, manual page; also: uninstall
# make format     clang-format on the lines that differ from the last commit; FILES="a.c b.h": on whole files
# make coverage   runs the tests and reports which lines of src/ they reach
# make bench-peers   Rondo beside Open MPI, MPICH and Gloo: tables, goals and a plot into bench/; PEERS=quick: fewer
# make bench-guard   instructions per call, beside those of bench/guard.txt; ACCEPT=1 writes that file
# make bench-reduce  every element type and operator in units of a float32 sum, into bench/RESULTS.md
# make help       this text
# V=1 shows the commands. demo and check install missing Debian packages when they can.

# ---- Settings ------------------------------------------------------------------------------------------------
CC      ?= gcc
ifeq ($(origin CC),default)
CC      := gcc
endif
BUILD   ?= build
OPT     ?= -O2
KERNEL_OPT ?= -O3
SAN     ?=
JOBS    ?= $(shell nproc)
# Kernels for GPUs: machine code for these architectures, and PTX, which the driver translates for any later one.
NVCC    ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
GPUS    ?= 90
PTX     ?= 75
KERNELS ?= build/kernels
PACKAGES = gcc libc6-dev libhwloc-dev libsodium-dev libjson-c-dev libcmocka-dev
CHECK_PACKAGES = $(PACKAGES) g++ libibverbs-dev python3 iproute2 nftables util-linux procps spin pkgconf
GUEST_PACKAGES = qemu-system-x86 busybox-static iproute2 ibverbs-providers

# A sanitizer's instrumentation keeps gcc from seeing what is initialised.
WARN     = -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith $(if $(SAN),-Wno-maybe-uninitialized)
CPPFLAGS = -D_GNU_SOURCE -Iinclude -Isrc -I.
CFLAGS   = -std=c11 $(OPT) -g -ffp-contract=off -fPIC -fvisibility=hidden -pthread $(WARN) $(SAN)
LDFLAGS  = -pthread $(SAN)
LIBS     = -lhwloc -lsodium -lm
# RDMA is in the build where rdma-core's headers are; its library is loaded when the program runs.
VERBS_HEADERS := $(shell $(CC) -E -include infiniband/verbs.h -x c /dev/null >/dev/null 2>&1 && echo yes)
CPPFLAGS += $(if $(VERBS_HEADERS),-DRD_VERBS)
TOOL_LIBS = -ljson-c

comma := ,
ifeq ($(V),)
Q = @
say = @printf '  %-7s %s\n' $(1) $(2);
endif

# ---- What is built -------------------------------------------------------------------------------------------
LIB_SRC  := $(wildcard $(addsuffix /*.c,src/base src/boot src/topo src/transport src/reduce src/ring src/core src/ddp))
LIB_SRC  := $(if $(VERBS_HEADERS),$(LIB_SRC),$(filter-out src/transport/verbs%,$(LIB_SRC)))
CLI_SRC  := $(wildcard src/cli/*.c)
SHIM_SRC := $(wildcard src/shim/*.c)
TEST_SRC := $(wildcard tests/test_*.c)
CHAOS_SRC := $(wildcard tests/chaos*.c)
HELP_SRC := $(filter-out $(TEST_SRC) $(CHAOS_SRC),$(wildcard tests/*.c))
EXAMPLES := $(patsubst examples/%.c,$(BUILD)/examples/%,$(filter-out examples/nccl_%,$(wildcard examples/*.c))) \
            $(addprefix $(BUILD)/,$(wildcard examples/data/*.csv examples/data/*.txt))
BENCHES  := $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c)) $(BUILD)/bench/gpu
object    = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
TESTS    := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SRC))

.SECONDARY:
.PHONY: all demo check check-long check-layers chaos asan ubsan tsan lint bench-peers bench-guard bench-reduce deps clean tests
.PHONY: cudasim-tests check-cudasim check-cudasim-plain check-cudasim-asan check-cudasim-ubsan check-cudasim-tsan
.PHONY: run-tests rdma-tests check-gpu gpu-bundle check-verbs no-verbs
.PHONY: install uninstall coverage format help release
all: $(if $(VERBS_HEADERS),,no-verbs) $(BUILD)/librondo.so $(BUILD)/librondo.a $(BUILD)/compat/libnccl.so $(BUILD)/rondo $(EXAMPLES) $(BENCHES)

no-verbs:
	@echo "  without RDMA: rdma-core's headers are not here (apt-get install libibverbs-dev)"

# What says whether there is RDMA is built again when the headers come or go.
$(call object,src/transport/registry.c src/cli/doctor_rdma.c tests/test_link.c tests/test_link_make.c): $(BUILD)/rdma-$(or $(VERBS_HEADERS),no)
$(BUILD)/rdma-%:
	@mkdir -p $(@D) && rm -f $(BUILD)/rdma-* && touch $@

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) $(CFLAGS_$(basename $(notdir $<))) -MMD -MP -c $< -o $@

# The same kernels once for each instruction set; chosen at run time.
CFLAGS_kernels_portable = $(KERNEL_OPT)
CFLAGS_limits_memory    = $(KERNEL_OPT)
CFLAGS_dp_vs_ddp_net    = $(KERNEL_OPT)
CFLAGS_kernels_avx2     = $(KERNEL_OPT) -mavx2 -mfma -mf16c
CFLAGS_kernels_avx512   = $(KERNEL_OPT) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mprefer-vector-width=512

# Kernels for GPUs lie in the library as one image. Sanitizers don't see it, so all builds share it. Without nvcc it is a
# remark that no GPU's driver takes for kernels; the simulated one knows it, so that tests run alike.
$(KERNELS)/all.fatbin: $(wildcard kernels/*) include/rondo.h
	@mkdir -p $(@D)
ifeq ($(NVCC),)
	@echo "no nvcc: the library is built without kernels for GPUs, and serves host memory"
	@echo '// librondo was built without nvcc' >$@
else
	$(call say,NVCC,$@)$(NVCC) -std=c++17 -O3 -fmad=false -Iinclude -fatbin --compress-mode=size \
	$(foreach gpu,$(GPUS),-gencode arch=compute_$(gpu),code=sm_$(gpu)) -gencode arch=compute_$(PTX),code=compute_$(PTX) -o $@ kernels/all.cu
endif

$(BUILD)/obj/src/reduce/image.o: $(KERNELS)/all.fatbin
CFLAGS_doctor_gpus = -DRD_KERNELS_FOR='"$(if $(NVCC),this build has kernels for $(GPUS:%=sm_%) and PTX for sm_$(PTX) and later,this build has none: nvcc was not there)"'
CFLAGS_image = -DRD_KERNEL_IMAGE='"$(KERNELS)/all.fatbin"'

release:
	@[ -n "$(NVCC)" ] || { echo "make release: no nvcc here; NVCC=path names it" >&2; exit 1; }
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=build/release KERNELS=build/release/kernels GPUS="75 80 86 89 90 100 120" PTX=120 all

$(BUILD)/librondo.a: $(call object,$(LIB_SRC))
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^

# nodelete: its service thread and exit handler must outlive a dlclose.
$(BUILD)/librondo.so.0: $(call object,$(LIB_SRC)) src/rondo.map
	$(call say,LD,$@)$(CC) -shared -Wl,-soname,librondo.so.0 -Wl,-z,nodelete -Wl,--version-script=src/rondo.map $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS)

$(BUILD)/librondo.so: $(BUILD)/librondo.so.0
	@ln -sf librondo.so.0 $@

# The drop-in for NCCL: one file that brings all it needs, so that it can be put before the other one anywhere.
$(BUILD)/compat/libnccl.so.2: $(call object,$(SHIM_SRC)) $(BUILD)/librondo.a src/shim/nccl.map
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -shared -Wl,-soname,libnccl.so.2 -Wl,-z,nodelete $(if $(SAN),,-Wl,-z$(comma)defs) -Wl,--version-script=src/shim/nccl.map $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LIBS)

$(BUILD)/compat/libnccl.so: $(BUILD)/compat/libnccl.so.2
	@ln -sf libnccl.so.2 $@

$(BUILD)/rondo: $(call object,$(CLI_SRC)) $(BUILD)/librondo.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(TOOL_LIBS) $(LIBS)

$(BUILD)/examples/%: $(BUILD)/obj/examples/%.o $(BUILD)/librondo.so
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $< -L$(BUILD) -lrondo -Wl,-rpath,'$$ORIGIN/..' -lm

# Example programs find their data beside themselves.
$(BUILD)/examples/data/%: examples/data/%
	@mkdir -p $(@D) && cp $< $@

$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(BUILD)/librondo.so
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -L$(BUILD) -lrondo -Wl,-rpath,'$$ORIGIN/..' -lm

$(BUILD)/bench/overlap: $(call object,src/cli/limits_meet.c)

# This one measures what is inside.
$(BUILD)/bench/reduce: $(BUILD)/obj/bench/reduce.o $(BUILD)/librondo.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# So does this; of CUDA's libraries it needs the driver alone, when it runs.
$(BUILD)/bench/gpu: $(call object,$(wildcard bench/gpu/*.c)) $(BUILD)/librondo.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -ldl $(LIBS)

# This test sees every call that a socket link makes.
LDFLAGS_test_link_tcp = -Wl,--wrap=sendmsg,--wrap=recvmsg,--wrap=send,--wrap=recv
LDFLAGS_test_exec_tcp = $(LDFLAGS_test_link_tcp)
# ... and this one the connections that links are made over.
LDFLAGS_test_reach = -Wl,--wrap=rd_member_connect,--wrap=rd_member_visit

# Tests may look inside: they link the static library.
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(call object,$(HELP_SRC)) $(BUILD)/librondo.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) $(LDFLAGS_$(notdir $@)) -o $@ $^ -lcmocka -ldl $(LIBS)

# A CUDA driver for tests, and kernels for it (tests/cudasim/sim.h). It is never installed. The sanitizers of threads and of
# addresses are told what the driver does instead of looking at it, and of addresses the driver knows more than the
# sanitizer does: kernels ask it (tests/cudasim/sanitize.h).
CXX       ?= g++
SIM       := $(BUILD)/cudasim
SIM_SRC   := $(wildcard tests/cudasim/*.c)
SIM_PLANTS := no_barrier relaxed_store relaxed_load lost_counter one_too_far misaligned
# ... and those in the library's own kernels, which tests/cudasim/plant.sh plants.
KERNEL_PLANTS := apart half_flag no_barrier no_packed_barrier no_call_barrier no_peers_barrier lost_slice relaxed_store relaxed_load lost_counter one_too_far one_packet_too_few misaligned
SIM_TRIALS := $(basename $(notdir $(wildcard tests/cudasim/trial_*.cu))) $(SIM_PLANTS:%=trial_ring_%)
# Libraries of kernels for the CPU, and IMAGE:LIBRARY for each, seen from $(SIM). A trial's image is its name.
SIM_LIBS   = $(SIM_TRIALS:%=$(SIM)/%.so) $(SIM)/all.so $(KERNEL_PLANTS:%=$(SIM)/all_%.so)
SIM_IMAGES = $(foreach t,$(SIM_TRIALS),$(t).ptx:$(t).so) $(abspath $(KERNELS)/all.fatbin):all.so
SIM_CXX    = $(CXX) -x c++ -std=gnu++17 -fPIC -shared -fno-strict-aliasing -ffp-contract=off $(OPT) -g -Wall -Wextra -Werror \
             $(if $(filter address,$(SIM_SAN)),$(SIM_CHECK),$(SAN)) -Iinclude -Itests/cudasim -include tests/cudasim/device.h -MMD -MP

SIM_SAN    = $(patsubst -fsanitize=%,%,$(filter -fsanitize=thread -fsanitize=address,$(SAN)))
SIM_CHECK  = -fsanitize=kernel-address --param asan-instrumentation-with-call-threshold=0 --param asan-stack=0 \
             --param asan-globals=0 -DRD_SIM_CHECK -Wl,-Bsymbolic-functions

$(BUILD)/obj/tests/cudasim/%.o: CFLAGS += $(foreach s,$(SIM_SAN),-fno-sanitize=$(s) -DSIM_SAN_$(s))

$(SIM)/libcuda.so.1: $(call object,$(SIM_SRC))
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs $(LDFLAGS) -o $@ $^

$(SIM)/%.so: tests/cudasim/%.cu
	@mkdir -p $(@D)
	$(call say,CXX,$<)$(SIM_CXX) -o $@ $<

# A bug in the ring, for those who must find it.
$(SIM)/trial_ring_%.so: tests/cudasim/trial_ring.cu
	@mkdir -p $(@D)
	$(call say,CXX,$@)$(SIM_CXX) -DPLANT_$(shell echo $* | tr a-z A-Z) -o $@ $<

$(SIM)/all_%.so: $(wildcard kernels/*) tests/cudasim/plant.sh include/rondo_plan.h include/rondo_transport.h
	@tests/cudasim/plant.sh $* $(SIM)/planted/$*/kernels
	$(call say,CXX,$@)$(SIM_CXX) -O0 -o $@ $(SIM)/planted/$*/kernels/all.cu

$(SIM)/%.so: kernels/%.cu
	@mkdir -p $(@D)
	$(call say,CXX,$<)$(SIM_CXX) -o $@ $<

$(SIM)/images: $(SIM_LIBS) Makefile
	$(Q)for t in $(SIM_TRIALS); do echo "// $$t" >$(SIM)/$$t.ptx; done
	$(Q)printf '%s\n' $(SIM_IMAGES) | tr : ' ' >$@

# The runtime that belongs to it, for programs that have no kernels.
$(BUILD)/obj/tests/cudart/%.o: CFLAGS += -fvisibility=default
$(SIM)/libcudart.so.13: $(BUILD)/obj/tests/cudart/cudart.o $(BUILD)/librondo.a tests/cudart/cudart.map
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -shared -Wl,-soname,libcudart.so.13 -Wl,--version-script=tests/cudart/cudart.map $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LIBS)

# These are programs for NCCL: they see nccl.h, and run with the drop-in.
$(BUILD)/obj/tests/test_nccl_%.o $(BUILD)/obj/tests/nccl/%.o: CPPFLAGS += -Iinclude/compat
$(BUILD)/tests/test_nccl_%: $(BUILD)/obj/tests/test_nccl_%.o $(BUILD)/compat/libnccl.so
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $< -L$(BUILD)/compat -lnccl -Wl,-rpath,'$$ORIGIN/../compat' -lcmocka -lm

# What needs RDMA devices; tests/vm/suite.sh runs it.
RDMA_TESTS := $(patsubst tests/rdma/%.c,$(BUILD)/rdma/%,$(wildcard tests/rdma/*.c))
$(BUILD)/rdma/%: $(BUILD)/obj/tests/rdma/%.o $(call object,$(HELP_SRC)) $(BUILD)/librondo.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka -ldl $(LIBS)

# Random calls, random faults.
$(BUILD)/chaos: $(call object,$(CHAOS_SRC) tests/ranks.c) $(BUILD)/librondo.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBS)

-include $(shell find $(BUILD)/obj $(BUILD)/cudasim -name '*.d' 2>/dev/null)

# ---- The two commands ----------------------------------------------------------------------------------------
demo:
	@$(MAKE) --no-print-directory deps NEED="$(PACKAGES)"
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@examples/demo.sh $(BUILD)

check:
	@$(MAKE) --no-print-directory deps NEED="$(CHECK_PACKAGES)"
	@$(MAKE) --no-print-directory deps NEED=valgrind || echo "going on without: what calls cost is not counted"
	@$(MAKE) --no-print-directory -j$(JOBS) all tests
	@$(MAKE) --no-print-directory check-layers run-tests

rdma-tests: $(RDMA_TESTS)
tests: $(TESTS) $(BUILD)/chaos $(SIM)/libcuda.so.1 $(SIM)/libcudart.so.13 $(SIM)/images
run-tests:
	@tests/run.sh $(BUILD)

# Debian's packages that are not there yet: installed as root or by a sudo that asks nothing, else named.
deps:
	@missing=; for p in $(NEED); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ]; then sudo=; elif sudo -n true 2>/dev/null; then sudo='sudo -n'; \
	else echo "missing packages; install them with:  sudo apt-get install$$missing" >&2; exit 1; fi; \
	echo "installing$$missing"; \
	{ $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$missing; } >/dev/null \
	|| { echo "could not install them; try:  apt-get install$$missing" >&2; exit 1; }

# ---- Benchmarks beside others --------------------------------------------------------------------------------
PEER_PACKAGES = openmpi-bin libopenmpi-dev mpich libmpich-dev g++ libgloo-dev python3
PEER_SRC      = bench/peers/serve.c src/cli/limits_meet.c
LIMIT_SRC     = $(wildcard src/cli/limits*.c)

$(BUILD)/peers/rondo: $(call object,bench/peers/rondo_all_reduce.c bench/peers/serve.c $(LIMIT_SRC)) $(BUILD)/librondo.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# One source, each MPI's own compiler.
$(BUILD)/peers/openmpi $(BUILD)/peers/mpich: $(BUILD)/peers/%: bench/peers/mpi_all_reduce.c $(PEER_SRC)
	@mkdir -p $(@D)
	$(call say,MPICC,$@)mpicc.$* $(CPPFLAGS) -std=c11 $(OPT) -g $(WARN) -o $@ $^

$(BUILD)/peers/gloo: bench/peers/gloo_all_reduce.cc $(call object,$(PEER_SRC))
	@mkdir -p $(@D)
	$(call say,CXX,$@)$(CXX) $(CPPFLAGS) -Ibench/peers -std=c++17 $(OPT) -g -Wall -Wextra -Werror -pthread -o $@ $^ -lgloo

$(BUILD)/peers/two_phase: $(call object,bench/peers/two_phase.c $(PEER_SRC))
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^

bench-peers:
	@$(MAKE) --no-print-directory deps NEED="$(PACKAGES) $(PEER_PACKAGES)"
	@$(MAKE) --no-print-directory -j$(JOBS) $(addprefix $(BUILD)/,rondo peers/rondo peers/two_phase peers/openmpi peers/mpich peers/gloo)
	@bench/peers/peers.py $(BUILD) $(if $(PEERS),--$(PEERS))

# What the instructions of a call depend on is in one build; valgrind counts them. `make check` does so, too.
bench-guard:
	@$(MAKE) --no-print-directory deps NEED="$(PACKAGES) python3 valgrind"
	@$(MAKE) --no-print-directory -j$(JOBS) $(BUILD)/bench/guard_calls
	@bench/guard.py $(BUILD) $(if $(ACCEPT),--accept)

bench-reduce: $(BUILD)/bench/reduce
	@{ sed '/make bench-reduce: begin/q' bench/RESULTS.md; \
	echo; echo "Machine:$$(sed -n 's/^model name.*://p' /proc/cpuinfo | head -1), $$(nproc) processors. Command: \`make bench-reduce\`."; \
	$(BUILD)/bench/reduce; echo; sed -n '/make bench-reduce: end/,$$p' bench/RESULTS.md; } >$(BUILD)/results.md
	@cat $(BUILD)/results.md >bench/RESULTS.md

# ---- Other checks --------------------------------------------------------------------------------------------
SEED   ?=
ROUNDS ?= 500
chaos:
	@$(MAKE) --no-print-directory -j$(JOBS) $(BUILD)/chaos
	@SEED=$(SEED) ROUNDS=$(ROUNDS) $(BUILD)/chaos

check-long:
	@$(MAKE) --no-print-directory -j$(JOBS) all tests
	@RONDO_TEST_LONG=1 DEADLINE=1800 tests/run.sh $(BUILD)
	@$(MAKE) --no-print-directory chaos

# Where no guest comes up this fails: to skip it would look like passing.
VERBS ?= guest
check-verbs:
	@$(MAKE) --no-print-directory deps NEED="$(CHECK_PACKAGES) $(if $(filter guest,$(VERBS)),$(GUEST_PACKAGES))"
	@$(MAKE) --no-print-directory -j$(JOBS) all tests rdma-tests
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/asan OPT=-O1 KERNEL_OPT=-O1 SAN="$(SAN_asan)" rdma-tests
	@$(if $(filter guest,$(VERBS)),RONDO_TEST_GUEST=1 tests/vm/guest -t 540) tests/vm/suite.sh $(BUILD)

check-layers: all
	@tests/layers.sh $(BUILD)/obj

SAN_asan  = -fsanitize=address -fno-omit-frame-pointer
SAN_ubsan = -fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all
SAN_tsan  = -fsanitize=thread
asan:
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=build/asan OPT=-O1 KERNEL_OPT=-O1 SAN="$(SAN_asan)" all tests
	@tests/run.sh build/asan
ubsan:
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=build/ubsan OPT=-O1 KERNEL_OPT=-O1 SAN="$(SAN_ubsan)" all tests
	@tests/run.sh build/ubsan
tsan:
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=build/tsan OPT=-O1 KERNEL_OPT=-O1 SAN="$(SAN_tsan)" all tests
	@tests/run.sh build/tsan

# What runs over the simulated driver, in each of these builds.
SIM_TESTS = $(filter $(foreach kind,cudasim gpu device kernels ddp data_parallel,$(BUILD)/tests/test_$(kind)%),$(TESTS))
cudasim-tests: $(BUILD)/librondo.so $(BUILD)/rondo $(BUILD)/examples/all_reduce_cuda $(SIM_TESTS) $(SIM)/libcuda.so.1 $(SIM)/images
check-cudasim:
	@for kind in plain asan ubsan tsan; do $(MAKE) --no-print-directory check-cudasim-$$kind || exit 1; done
check-cudasim-plain: cudasim-tests
	@ONLY='test_(cudasim|gpu|device|kernels|ddp|data_parallel)' tests/run.sh $(BUILD)
# Where there is none this fails: to skip every test would look like passing.
check-gpu: cudasim-tests $(BUILD)/bench/gpu
	@$(BUILD)/bench/gpu about
	@CUDASIM=off ONLY='test_(gpu|device|kernels|ddp)' tests/run.sh $(BUILD)
gpu-bundle: cudasim-tests $(BUILD)/bench/gpu
	@tests/bundle/pack.sh $(BUILD)
check-cudasim-asan check-cudasim-ubsan check-cudasim-tsan: check-cudasim-%:
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=build/$* OPT=-O1 KERNEL_OPT=-O1 SAN="$(SAN_$*)" cudasim-tests
	@ONLY='test_(cudasim|gpu|device|kernels|ddp|data_parallel)' tests/run.sh build/$*

lint:
	@$(MAKE) --no-print-directory deps NEED="clang cppcheck"
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=build/clang CC=clang all tests
	cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 -D_GNU_SOURCE -Iinclude -Isrc src

coverage:
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=build/coverage OPT=-O1 KERNEL_OPT=-O1 SAN="--coverage -include tests/coverage.h" all tests
	@tests/coverage.sh build/coverage

FILES ?=
format:
	@$(MAKE) --no-print-directory deps NEED="clang-format"
	$(if $(FILES),clang-format -i $(FILES),git clang-format --force --extensions c,h)

# ---- Installing ----------------------------------------------------------------------------------------------
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
DESTDIR ?=
VERSION := $(shell awk '/define RONDO_VERSION_(MAJOR|MINOR|PATCH) / {printf "%s%s", dot, $$3; dot = "."}' include/rondo.h)
TO_LIB   = $(DESTDIR)$(LIBDIR)
TO_INC   = $(DESTDIR)$(PREFIX)/include
TO_BIN   = $(DESTDIR)$(PREFIX)/bin
TO_MAN   = $(DESTDIR)$(PREFIX)/share/man/man1

install: $(BUILD)/librondo.so $(BUILD)/librondo.a $(BUILD)/compat/libnccl.so $(BUILD)/rondo
	install -d $(TO_LIB)/pkgconfig $(TO_INC) $(TO_BIN) $(TO_MAN)
	install -m 755 $(BUILD)/librondo.so.0 $(TO_LIB)/librondo.so.$(VERSION)
	ln -sf librondo.so.$(VERSION) $(TO_LIB)/librondo.so.0
	ln -sf librondo.so.0 $(TO_LIB)/librondo.so
	install -m 644 $(BUILD)/librondo.a $(TO_LIB)
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; s|@LIBS@|$(LIBS)|' rondo.pc.in >$(TO_LIB)/pkgconfig/rondo.pc
	chmod 644 $(TO_LIB)/pkgconfig/rondo.pc
	install -m 644 include/rondo*.h $(TO_INC)
	install -d $(TO_LIB)/rondo/compat $(TO_INC)/rondo/compat
	install -m 755 $(BUILD)/compat/libnccl.so.2 $(TO_LIB)/rondo/compat
	ln -sf libnccl.so.2 $(TO_LIB)/rondo/compat/libnccl.so
	install -m 644 include/compat/nccl.h $(TO_INC)/rondo/compat
	install -m 755 $(BUILD)/rondo $(TO_BIN)
	install -m 644 docs/rondo.1 $(TO_MAN)
	@[ -n "$(DESTDIR)" ] || { PATH=$$PATH:/usr/sbin:/sbin; ldconfig 2>/dev/null; ldconfig -p | grep -q ' $(LIBDIR)/librondo.so.0$$'; } || \
	echo "Programs find librondo.so.0 in $(LIBDIR) when linked with -Wl,-rpath,$(LIBDIR), or with LD_LIBRARY_PATH=$(LIBDIR)."

# What install made, innermost first; those of the system stay.
OWN     := $(if $(filter-out / /usr /usr/local,$(PREFIX)),yes)
EMPTIED  = $(TO_LIB)/pkgconfig $(TO_LIB)/rondo $(TO_INC)/rondo $(if $(OWN),$(if $(filter $(PREFIX)/%,$(LIBDIR)),$(TO_LIB)) $(TO_INC) $(TO_BIN) $(TO_MAN) \
           $(DESTDIR)$(PREFIX)/share/man $(DESTDIR)$(PREFIX)/share $(DESTDIR)$(PREFIX))

uninstall:
	rm -f $(TO_LIB)/librondo.so $(TO_LIB)/librondo.so.0 $(TO_LIB)/librondo.so.$(VERSION) $(TO_LIB)/librondo.a
	rm -f $(TO_LIB)/pkgconfig/rondo.pc $(addprefix $(TO_INC)/,$(notdir $(wildcard include/rondo*.h))) $(TO_BIN)/rondo $(TO_MAN)/rondo.1
	rm -f $(TO_LIB)/rondo/compat/libnccl.so $(TO_LIB)/rondo/compat/libnccl.so.2 $(TO_INC)/rondo/compat/nccl.h
	@rmdir $(TO_LIB)/rondo/compat $(TO_INC)/rondo/compat $(EMPTIED) 2>/dev/null || true

clean:
	rm -rf build

# The lines above that begin with a number sign, but for the first two.
help:
	@sed -n '1,2d; /^$$/q; s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))
