# The interpreter of PTX, which ptx.h describes.
#   make ptx                  the self-test; compiles tensorgrad_cuda.cu to PTX by nvcc; runs the tests of kernels on it
#   make ptx-kernels          each kernel of the file once, compared with the simulator; PTX_ARCH=90a for another sm_:
#                             that one also has the kernels with wgmma, which the tests of attention run, too
#   make ptx-mutants          mistakes in nvcc's PTX, each of which a test must notice; after make ptx, needs python3
#   make sim SIM=ptx MAIN=tests/cuda/test_rows.c OUT=prog     then: TG_SIM_PTX=1 TG_SIM_DEVICES=2 ./prog
# Without nvcc only the self-test runs.

PTX_DIR := tests/ptx
PTX_BUILD := $(BUILD)/ptx
PTX_ARCH ?= 80
PTX_FILE = $(PTX_BUILD)/sm_$(PTX_ARCH).ptx
PTX_HEADERS := $(PTX_DIR)/ptx.h $(PTX_DIR)/instructions.h
# fused products of the processor, where it has them: those of the C library are slow
PTX_COMPILE = $(CXX) -std=c++17 -g -ffp-contract=off -fno-strict-aliasing -fwrapv -Wall -Wextra \
    $(shell grep -qw fma /proc/cpuinfo && echo -mfma -mavx2)

$(PTX_BUILD)/execute.o $(PTX_BUILD)/parse.o: $(PTX_BUILD)/%.o: $(PTX_DIR)/%.cpp $(PTX_HEADERS)
	@mkdir -p $(PTX_BUILD)
	$(PTX_COMPILE) -O2 -c $< -o $@

$(PTX_BUILD)/launch.o: $(PTX_DIR)/launch.cpp $(PTX_HEADERS) $(SIM_HEADERS)
	@mkdir -p $(PTX_BUILD)
	$(PTX_COMPILE) -O1 -I$(SIM_DIR) -DPTX_FILE='"$(abspath $(PTX_FILE))"' -c $< -o $@

$(PTX_FILE): tensorgrad_cuda.cu tensorgrad.h
	@mkdir -p $(PTX_BUILD)
	nvcc -ptx -arch=sm_$(PTX_ARCH) $< -o $@.new && mv $@.new $@

# The tests of the kernels and of moves run here from nvcc's PTX, in small; and the network that is on two devices, which
# prints what it prints on the CPU, but for where it is.
PTX_TESTS ?= $(addprefix cuda/test_,elementwise along rows windows linear flash) test_moves
PTX_RUN = TG_SIM_PTX='$(abspath $(PTX_FILE))' TG_SIM_DEVICES=2 TG_SIM_PTX_SEED=$(or $(SEED),1)
ptx: ptx-selftest
	@if ! command -v nvcc > /dev/null; then echo 'ptx: skipped: no nvcc'; else $(MAKE) -s ptx-kernels ptx-tests; fi

ptx-tests: $(PTX_FILE)
	@for test in $(PTX_TESTS); do \
	    $(MAKE) -s sim SIM=ptx MAIN=tests/$$test.c OUT=$(PTX_BUILD)/$${test##*/} && \
	    SMALL=1 $(PTX_RUN) $(PTX_BUILD)/$${test##*/} || exit 1; \
	done
	@$(MAKE) -s $(BUILD)/check_output
	@$(MAKE) -s sim SIM=ptx MAIN=examples/pipeline.c OUT=$(PTX_BUILD)/pipeline SIM_CFLAGS=-DTG_COMPILED
	@$(PTX_RUN) $(PTX_BUILD)/pipeline > $(PTX_BUILD)/pipeline.txt
	@grep -q 'cuda:0' $(PTX_BUILD)/pipeline.txt && grep -q 'cuda:1' $(PTX_BUILD)/pipeline.txt
	@sed 's/cuda:[01]/cpu/g' $(PTX_BUILD)/pipeline.txt > $(PTX_BUILD)/pipeline-cpu.txt
	@$(BUILD)/check_output examples/expected/pipeline.txt $(PTX_BUILD)/pipeline-cpu.txt

# On a device of compute capability 9.0 attention has kernels of its own; in code for others these are empty.
PTX_HOPPER = $(if $(filter 90a,$(PTX_ARCH)),TG_SIM_CAPABILITY=90 TG_SIM_ARCH=90)
# Fails if a kernel of the file did not run, and names those that did not.
PTX_LOG = $(PTX_BUILD)/executed-$(PTX_ARCH).txt
ptx-kernels: $(PTX_FILE)
	@$(MAKE) -s sim SIM=ptx MAIN=tests/cuda/test_kernels.c OUT=$(PTX_BUILD)/test_kernels
	@rm -f $(PTX_LOG)
	@$(PTX_RUN) TG_SIM_PTX_COMPARE=1 TG_SIM_PTX_LOG=$(PTX_LOG) $(PTX_BUILD)/test_kernels
	@$(if $(PTX_HOPPER),$(MAKE) -s ptx-hopper)
	@sed -n 's/.*\.entry \([A-Za-z0-9_]*\).*/\1/p' $(PTX_FILE) | awk -v arch=$(PTX_ARCH) ' \
	    arch != "90a" && /tgi_hopper_/ { next } \
	    NR == FNR { if (!($$1 in ran) || $$2 > ran[$$1]) ran[$$1] = $$2; next } \
	    { ++all; if (ran[$$1] > 0) ++rounded; else if (ran[$$1] != "") ++same } \
	    ran[$$1] == "" { print "not executed: " $$1; ++missing } \
	    END { printf "ptx: %d of %d kernels of sm_%s executed, %d with the bits of the simulator, %d within rounding\n", \
	        all - missing, all, arch, same, rounded; exit missing > 0 || all == 0 }' $(PTX_LOG) -

# The kernels with wgmma, in small: compared with the simulator, and the tests of attention.
ptx-hopper: $(PTX_FILE)
	@for test in test_kernels test_flash; do \
	    $(MAKE) -s sim SIM=ptx MAIN=tests/cuda/$$test.c OUT=$(PTX_BUILD)/$$test || exit 1; \
	done
	@$(PTX_RUN) $(PTX_HOPPER) TG_SIM_PTX_COMPARE=1 TG_SIM_PTX_LOG=$(PTX_LOG) $(PTX_BUILD)/test_kernels fused_attention
	@SMALL=1 $(PTX_RUN) $(PTX_HOPPER) $(PTX_BUILD)/test_flash

ptx-mutants: $(PTX_FILE)
	@python3 $(PTX_DIR)/mutants.py $(PTX_FILE) $(PTX_BUILD)

ptx-selftest: $(PTX_BUILD)/selftest
	$(PTX_BUILD)/selftest

$(PTX_BUILD)/selftest: $(PTX_DIR)/selftest.cpp $(PTX_BUILD)/execute.o $(PTX_BUILD)/parse.o $(PTX_HEADERS)
	$(PTX_COMPILE) -O0 $< $(PTX_BUILD)/execute.o $(PTX_BUILD)/parse.o -o $@

.PHONY: ptx ptx-kernels ptx-hopper ptx-tests ptx-mutants ptx-selftest
