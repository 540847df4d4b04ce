# The simulator for CUDA; cudasim_test.h describes it.
#   make sim MAIN=main.c OUT=prog [SIM=plain|asan|fma|check|ptx] [CUDA_SOURCE=tensorgrad_cuda.cu] [SIM_CFLAGS=...]
# builds a program that includes tensorgrad.h with tensorgrad_cuda.cu and the simulator.  Then: TG_SIM_DEVICES=2 ./prog
# CUDASIM is defined, so that the program can include cudasim_test.h.  A program without the implementation gets that of
# tests/library.c.  All builds but fma have NCCL (TG_USE_NCCL).
#   SIM=plain  optimised, the fastest
#   SIM=asan   with AddressSanitizer and UndefinedBehaviorSanitizer
#   SIM=fma    a * b + c is rounded once, as nvcc compiles it; blocks may take turns, TG_SIM_BLOCKS (needs clang++)
#   SIM=ptx    with the interpreter of tests/ptx, which runs the kernels as nvcc compiled them; see ptx.mk there
#   SIM=check  each load and store of a kernel is checked: races, bounds, memory that was never written (needs clang++)
# BLOCKS=2: a grid has at most so many blocks, so that the loops of kernels over more items go round on small tensors.

SIM ?= plain
CUDA_SOURCE ?= tensorgrad_cuda.cu
CXX ?= c++
CLANGXX ?= clang++
SIM_DIR := tests/cudasim
SIM_BUILD := $(BUILD)/sim-$(SIM)
SIM_HOST = $(BUILD)/sim-host$(if $(SIM_SANITIZE),-$(SIM))
SIM_HEADERS := $(wildcard $(SIM_DIR)/*.h)
SIM_WARNINGS := -Wall -Wextra -Wno-unknown-pragmas
SIM_SANITIZE :=
SIM_CHECK := nocheck
SIM_REPORT :=
SIM_RENAME := true
SIM_NCCL := $(if $(filter-out fma,$(SIM)),-DTG_USE_NCCL)

ifeq ($(SIM),plain)
SIM_CXX := $(CXX) -O2
else ifeq ($(SIM),asan)
SIM_SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SIM_CXX := $(CXX) -O1
else ifeq ($(SIM),fma)
SIM_CXX := $(CLANGXX) -O2
SIM_KERNEL := -ffp-contract=fast $(shell grep -qw fma /proc/cpuinfo && echo -mfma)
else ifeq ($(SIM),check)
SIM_CXX := $(CLANGXX) -O1
SIM_CHECK := check
SIM_REPORT := $(SIM_BUILD)/report.o
# The instrumentation of ThreadSanitizer, which calls functions of check.cpp; its library is not linked.  Older compilers call
# memcpy itself where an object is copied as a whole; that is renamed, so that check.cpp sees it, too.
SIM_RENAME = objcopy --redefine-sym memcpy=__tsan_memcpy --redefine-sym memmove=__tsan_memmove \
    --redefine-sym memset=__tsan_memset
SIM_KERNEL := -fsanitize=thread,bounds -fsanitize-trap=bounds -fno-omit-frame-pointer \
    -mllvm -tsan-instrument-func-entry-exit=0 -mllvm -tsan-handle-cxx-exceptions=0 -mllvm -tsan-instrument-atomics=0
else ifeq ($(SIM),ptx)
SIM_CXX := $(CXX) -O0 # of the kernels themselves none runs
else
$(error SIM is plain, asan, fma, check or ptx, not '$(SIM)')
endif

# Of debugging information the lines alone: where variables stand takes GCC as long as all the rest under the sanitizers.
SIM_COMPILE = $(SIM_CXX) -std=c++17 -g1 -ffp-contract=off $(SIM_WARNINGS) -I$(SIM_DIR) -I.
SIM_PTX := $(if $(filter ptx,$(SIM)),$(addprefix $(BUILD)/ptx/,execute.o parse.o launch.o))
SIM_OBJECTS := $(SIM_BUILD)/cudasim.o $(SIM_BUILD)/$(SIM_CHECK).o $(SIM_BUILD)/cublas.o $(SIM_BUILD)/nccl.o $(SIM_REPORT) \
    $(SIM_PTX)
SIM_STEM := $(basename $(notdir $(MAIN)))
SIM_CUDA := $(SIM_BUILD)/tensorgrad_cuda$(if $(BLOCKS),-$(BLOCKS)).o

sim: $(OUT)

$(SIM_BUILD)/cudasim.o $(SIM_BUILD)/nccl.o: $(SIM_BUILD)/%.o: $(SIM_DIR)/%.cpp $(SIM_HEADERS)
	@mkdir -p $(SIM_BUILD)
	$(SIM_COMPILE) $(SIM_SANITIZE) -c $< -o $@

$(SIM_BUILD)/$(SIM_CHECK).o $(SIM_BUILD)/report.o: $(SIM_BUILD)/%.o: $(SIM_DIR)/%.cpp $(SIM_HEADERS)
	@mkdir -p $(SIM_BUILD)
	$(SIM_COMPILE) -O2 -fno-omit-frame-pointer -c $< -o $@

$(SIM_BUILD)/cublas.o: $(SIM_DIR)/cublas.cpp $(SIM_HEADERS)
	@mkdir -p $(SIM_BUILD)
	$(SIM_COMPILE) -O3 -c $< -o $@

$(SIM_CUDA): $(CUDA_SOURCE) tensorgrad.h $(SIM_HEADERS)
	@mkdir -p $(SIM_BUILD)
	$(SIM_COMPILE) $(SIM_SANITIZE) $(SIM_KERNEL) -DTG_ENABLE_CUDA $(SIM_NCCL) $(SIM_CUFLAGS) \
	    $(if $(BLOCKS),-DTGI_MAX_BLOCKS=$(BLOCKS)) -x c++ -c $< -o $@.new
	@$(SIM_RENAME) $@.new && mv $@.new $@

SIM_CC = $(CC) -I. -I$(SIM_DIR) -g1 $(CPPFLAGS) $(CFLAGS) $(SIM_SANITIZE) -DTG_ENABLE_CUDA -DCUDASIM
# An archive: the linker takes its only member where the program has not defined the functions itself.  What is no kernel is
# compiled in one way for the builds without sanitizers, and once for all of them; for one instruction set, since the tests of the
# CPU have the others.
$(SIM_HOST)/library.a: tests/library.c tests/inside.h tensorgrad.h $(SIM_HOST)/flags
	$(SIM_CC) -DTG_PORTABLE -c $< -o $(SIM_HOST)/library.o
	$(AR) rcs $@ $(SIM_HOST)/library.o

sim-library: $(SIM_HOST)/library.a

# Changes when the compiler or a flag does, so that the library is built again.
$(SIM_HOST)/flags: FORCE
	@mkdir -p $(SIM_HOST)
	@echo '$(SIM_CC)' > $@.$$$$; if cmp -s $@.$$$$ $@; then rm $@.$$$$; else mv $@.$$$$ $@; fi

ifneq ($(and $(MAIN),$(OUT)),)
$(OUT): $(MAIN) $(SIM_OBJECTS) $(SIM_CUDA) $(SIM_HOST)/library.a tensorgrad.h FORCE
	$(SIM_CC) $(SIM_NCCL) $(SIM_CFLAGS) -c $(MAIN) -o $(SIM_BUILD)/$(SIM_STEM).o
	$(SIM_CXX) $(SIM_SANITIZE) $(SIM_BUILD)/$(SIM_STEM).o $(SIM_CUDA) $(SIM_OBJECTS) $(SIM_HOST)/library.a \
	    $(LDFLAGS) -o $@ -lpthread -lm $(LDLIBS)
else
sim: sim-usage
sim-usage:
	@echo 'make sim MAIN=main.c OUT=prog [SIM=plain|asan|check] [SIM_CFLAGS=...]'; exit 2
endif

.PHONY: sim sim-usage sim-library

# Tests the simulator in the build SIM: correct programs run without an error, and each of a list of mistakes is found.
SELFTEST := $(SIM_BUILD)/selftest
sim-selftest: $(SELFTEST)
	$(SELFTEST)

$(SELFTEST): $(SIM_DIR)/selftest.cu $(SIM_DIR)/selftest.cpp $(SIM_OBJECTS)
	$(SIM_COMPILE) $(SIM_SANITIZE) $(SIM_KERNEL) -x c++ -c $(SIM_DIR)/selftest.cu -o $(SIM_BUILD)/selftest_kernels.o
	@$(SIM_RENAME) $(SIM_BUILD)/selftest_kernels.o
	$(SIM_COMPILE) $(SIM_SANITIZE) -DSELFTEST_$(shell echo $(SIM) | tr a-z A-Z) -c $(SIM_DIR)/selftest.cpp \
	    -o $(SIM_BUILD)/selftest_main.o
	$(SIM_CXX) $(SIM_SANITIZE) $(SIM_BUILD)/selftest_kernels.o $(SIM_BUILD)/selftest_main.o $(SIM_OBJECTS) -o $@ \
	    -lpthread -lm

.PHONY: sim-selftest

# Compares the simulator's headers with the CUDA toolkit's, which are found by CUDA_HOME, CUDA_PATH or nvcc.
CUDA_INCLUDE = $(firstword $(wildcard $(CUDA_HOME)/include/cuda_runtime.h $(CUDA_PATH)/include/cuda_runtime.h \
    $(dir $(shell command -v nvcc 2> /dev/null))../include/cuda_runtime.h))
sim-conform:
	$(CXX) -std=c++17 -Wall -Wextra -fsyntax-only -I$(SIM_DIR) $(SIM_DIR)/conform.cpp
	@echo 'conform: the headers of the simulator'
	$(if $(CUDA_INCLUDE),$(CXX) -std=c++17 -fsyntax-only -isystem $(dir $(CUDA_INCLUDE)) $(SIM_DIR)/conform.cpp)
	@echo 'conform: $(if $(CUDA_INCLUDE),the headers of the CUDA toolkit,no CUDA toolkit found: skipped)'
	@echo 'conform: $(if $(wildcard $(dir $(CUDA_INCLUDE))nccl.h),nccl.h of NCCL,no NCCL beside the toolkit: skipped)'

.PHONY: sim-conform

# Counts what one training step of three models asks of a GPU.  $(BUILD)/sim-counts.txt tells of each kernel.
sim-counts:
	@$(MAKE) -s sim SIM=$(if $(shell command -v $(CLANGXX)),check,plain) MAIN=tests/cuda/counts.c OUT=$(BUILD)/sim-counts
	@TG_CUDA_PASS_THROUGH=0 $(if $(shell command -v $(CLANGXX)),TG_SIM_REPORT=$(BUILD)/sim-counts.txt) $(BUILD)/sim-counts
	@$(if $(shell command -v $(CLANGXX)),sh tests/ci/sectors.sh $(BUILD)/sim-counts.txt)

.PHONY: sim-counts

# Reports of small steps of GPT-2 and of what does not grow with them, from which predict.py works out the step of 12 layers
# and 16 sequences of 1024 tokens: the bytes of each kernel by the build check, its instructions, as ptxas makes them, by the
# interpreter of PTX, as on an H100.  It takes half an hour of a processor.
STEP := $(BUILD)/step
STEP_RUNS := 1,1,8384 1,2,8384 2,1,8384 2,2,8384 1,1,16768 1,2,16768 attention embedding norms loss
step_run = $(if $(filter attention embedding norms loss,$(1)),$(1),step $(subst $(COMMA), ,$(1)))
COMMA := ,
sim-step:
	@mkdir -p $(STEP)
	@$(MAKE) -s PTX_ARCH=90a $(PTX_BUILD)/sm_90a.ptx
	@python3 tests/bench/machine.py $(PTX_BUILD)/sm_90a.ptx 90a $(STEP)/machine.txt
	@$(MAKE) -s sim SIM=check MAIN=tests/cuda/counts.c OUT=$(STEP)/counts
	@$(MAKE) -s sim SIM=ptx MAIN=tests/cuda/counts.c OUT=$(STEP)/counts-ptx
	@export TG_CUDA_PASS_THROUGH=0 TG_SIM_MEMORY=8000000000 TG_SIM_CAPABILITY=90 TG_SIM_ARCH=90 \
	    TG_SIM_PTX_MACHINE=$(abspath $(STEP)/machine.txt); \
	$(foreach run,$(STEP_RUNS),TG_SIM_REPORT=$(STEP)/$(run).bytes $(STEP)/counts $(call step_run,$(run)) && \
	    TG_SIM_PTX=$(abspath $(PTX_BUILD)/sm_90a.ptx) TG_SIM_PTX_COUNTS=$(STEP)/$(run).ptx $(STEP)/counts-ptx $(call step_run,$(run)) &&) \
	python3 tests/bench/predict.py $(STEP)

.PHONY: sim-step
