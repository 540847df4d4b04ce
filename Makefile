# tensorgrad is one header: nothing has to be built to use it.  This builds its tests and examples, with a C compiler and
# GNU make alone.  CC, CFLAGS, CPPFLAGS, LDFLAGS and LDLIBS are honoured; BUILD is the folder for programs, out/ for what
# the demo, manual and book write.

BUILD ?= build
CFLAGS ?= -O2 -ffp-contract=off
TEXT ?= tensorgrad.h
ARGS ?=
ifneq ($(words $(BUILD)) $(findstring ',$(BUILD)),1 )
$(error BUILD is '$(BUILD)': make needs a path without spaces and quotes)
endif
DEVICE ?= cpu
SECONDS ?= 3600
SEED ?= $(shell date +%s)
TG_PYTHON ?= python3
NVCC ?= nvcc
# native leaves out the kernels of attention that only an H100 has
NVCC_ARCH = $(shell [ "$$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>&1 | sort -u)" = 9.0 ] && \
    echo sm_90a || echo native)
NVCCFLAGS ?= -O2 -arch=$(NVCC_ARCH)
PREFIX ?= /usr/local
DESTDIR ?=
VERSION = $(shell sed -n 's/^.define TG_VERSION_STRING "\(.*\)"/\1/p' tensorgrad.h)

EXAMPLES := $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/*.c))
TESTS := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/test_*.c))

help:
	@echo 'make demo            trains a character model on the source of the library, half a minute'
	@echo 'make demo TEXT=file  the same on a text of yours; ARGS="--steps 500 --seed 2" for its other options'
	@echo 'make demo RESUME=1   goes on from the last checkpoint;  make demo SAMPLE="text" continues a text'
	@echo 'make demo DEVICE=cuda    on an NVIDIA GPU, with nvcc (also cuda:1); make test CUDA=1 the tests; NVCC, NVCCFLAGS'
	@echo 'make test            builds and runs every test and checks the examples'
	@echo 'make check-deep      all checks, with the tools that are installed: sanitizers, valgrind, mutants; an hour'
	@echo 'make replay FIXTURES=dir   the op tests of PyTorch, recorded there; DEVICE=cpu, cudasim or cuda; OPS=a,b some of them'
	@echo 'make support         writes tests/SUPPORT.md: which op takes which dtypes, with backward or without'
	@echo 'make fuzz            random calls of every function for an hour, under sanitizers; or SECONDS=60 SEED=7'
	@echo 'make coverage        which lines of the header no test reaches, by gcc and gcov; five minutes'
	@echo 'make bench           the speed beside that of PyTorch and others that TG_PYTHON or python3 has: a quiet hour'
	@echo 'make bench ROWS=sgemm    the rows whose name contains the text; BENCH="--help" for more; with DEVICE=cuda the GPU, too'
	@echo 'make bench ROWS=program  whole programs beside PyTorch: ResNet, U-Net, GAN, ...; loss and speed of a step'
	@echo 'make bench-sweep     every op over a grid of shapes, dtypes and layouts beside PyTorch: 15 minutes; SWEEP=--coarse: two'
	@echo 'make bench-quick     without Python and others: how near to what the processor can do; a minute'
	@echo 'make sizes           bytes of a program and seconds to compile it, with each macro that leaves a part out; TIMES=3'
	@echo 'make check-examples  runs the examples and compares what they print with examples/expected'
	@echo 'make examples        builds the examples into $(BUILD)/'
	@echo 'make lab LAB=file    grades a solution of the tasks in examples/lab, the answers when not told; TASK=3 one of them'
	@echo 'make picture         draws examples/player.svg, the picture of README.md, again'
	@echo 'make web             writes out/web.html, the library inside a page: expressions to play with, two moons; needs clang, lld'
	@echo 'make mpi             builds out/mpi_train, one model trained by several processes: mpirun -np 4 out/mpi_train; needs mpicc'
	@echo 'make models          builds out/gpt2, llama, bert, vit, resnet and finetune, with files as people have them'
	@echo 'make sim MAIN=a.c OUT=a   builds a program with tensorgrad_cuda.cu on simulated CUDA devices (tests/cudasim)'
	@echo 'make ptx             runs the kernels as nvcc compiles them, by an interpreter of PTX (tests/ptx)'
	@echo 'make sim-counts      what a training step asks of a GPU, on simulated ones: launches, allocations, waits, megabytes'
	@echo 'make sim-step        what each kernel of a step of GPT-2 asks for, and should take on an H100; needs nvcc, clang++, python3'
	@echo 'make manual          writes the manual, the comments of the header as a page that can be searched; needs python3'
	@echo 'make book            writes the source as pages with links, and the manual beside them; needs python3'
	@echo 'make install         header, CUDA file, licence, files of pkg-config and CMake, below PREFIX=/usr/local; DESTDIR='
	@echo 'make uninstall       removes them;  make dist: the tracked files as out/tensorgrad-$(VERSION).tar.gz; needs git'
	@echo 'make clean           removes $(BUILD)/ and out/'
	@echo 'CC, CFLAGS, CPPFLAGS, LDFLAGS, LDLIBS are honoured; OPENMP= builds without OpenMP; BUILD=dir builds elsewhere'

# As many compilers at a time as there are processors, unless make is told another number.
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif

# OpenMP is used where a program of this compiler with these flags can be built and run with it.
ifneq ($(filter demo test replay support check-examples examples mpi models picture lab bench bench-quick bench-sweep fuzz $(BUILD)/%,$(MAKECMDGOALS)),)
OPENMP := $(shell mkdir -p $(BUILD) && cd $(BUILD) && \
    printf '\043include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n' > openmp.c && \
    $(CC) $(CPPFLAGS) $(CFLAGS) -fopenmp openmp.c -o openmp $(LDFLAGS) $(LDLIBS) 2> openmp.log && ./openmp && \
    echo -fopenmp)
$(info compiler: $(CC) $(CPPFLAGS) $(CFLAGS)   OpenMP: $(or $(OPENMP),none, one thread))
endif
COMPILE = $(CC) -I. -I$(BUILD) $(CPPFLAGS) $(CFLAGS) $(SANITIZE) $(CUDA_FLAGS) $(OPENMP) -o $@ $< \
    $(filter %.o,$(filter-out $< $(CUDA_OBJECT),$^)) $(CUDA_LIBS) $(LDFLAGS) -lm $(LDLIBS)

# CUDA=1, which DEVICE=cuda implies, links every program with the CUDA companion.  CUDA_HOME: the toolkit of nvcc.
ifneq ($(filter cuda cuda:%,$(DEVICE)),)
CUDA := 1
endif
ifneq ($(CUDA),)
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC)))))
CUDA_OBJECT := $(BUILD)/tensorgrad_cuda.o
CUDA_FLAGS := -DTG_ENABLE_CUDA
CUDA_LIBS := $(CUDA_OBJECT) -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart -lcublas -lcublasLt

$(TESTS) $(EXAMPLES) $(BUILD)/check_output $(BUILD)/device $(BUILD)/workloads $(BUILD)/fuzz_api $(BUILD)/replay: $(CUDA_OBJECT)

$(CUDA_OBJECT): tensorgrad_cuda.cu tensorgrad.h $(BUILD)/flags
	$(NVCC) $(NVCCFLAGS) -c $< -o $@
endif

demo: $(BUILD)/12_chargpt
	$(BUILD)/12_chargpt --text '$(subst ','\'',$(TEXT))' --device $(DEVICE) $(if $(RESUME),--resume 1) \
	    $(if $(SAMPLE),--sample '$(subst ','\'',$(SAMPLE))') $(ARGS)

# Before anything is compiled: how long it takes.
ifneq ($(filter test,$(MAKECMDGOALS)),)
BEGUN := $(shell date +%s)
$(info make test: compiles the library and $(words $(TESTS) $(EXAMPLES)) programs and runs them: $(or \
    $(shell cat $(BUILD)/log/took 2>/dev/null),some two minutes on two idle processors))
endif
test: $(BUILD)/library.o $(TESTS) $(EXAMPLES) $(BUILD)/check_output
	@BUILD='$(BUILD)' BEGUN=$(BEGUN) JOBS=$(patsubst -j%,%,$(filter -j%,$(MAKEFLAGS))) $(if $(CUDA),TG_TEST_DEVICE=cuda:0) sh tests/run.sh $(TESTS) -- $(EXAMPLES)

check-examples: $(EXAMPLES) $(BUILD)/check_output
	@BUILD='$(BUILD)' sh tests/run.sh -- $(EXAMPLES)

check-deep:
	@bash .ci/run --deep

# PyTorch's own op tests, which tests/tools/replay.sh records: forward and backward of each, compared.  DEVICE=cudasim is the
# CUDA backend without a GPU; OPS=softmax,cat runs these alone.
FIXTURES ?= $(BUILD)/replay-fixtures
REPLAY := $(BUILD)/$(if $(filter cudasim,$(DEVICE)),sim_)replay
replay: $(filter-out $(BUILD)/sim_%,$(REPLAY))
	@[ -f '$(FIXTURES)/cases.txt' ] || { echo 'make replay FIXTURES=dir [DEVICE=cpu|cudasim|cuda] [OPS=a,b]: $(FIXTURES) \
	has no cases.txt, which opinfo_fixtures.py records'; exit 2; }
	$(if $(filter cudasim,$(DEVICE)),@$(MAKE) -s DEVICE=cpu sim MAIN=tests/tools/replay.c OUT=$(REPLAY))
	@TG_SIM_DEVICES=1 $(REPLAY) '$(FIXTURES)' $(OPS) --device $(DEVICE)

# What each op takes, of which dtypes, and how far it is differentiated: the table that tests/ci/support.sh holds current.
support: $(BUILD)/support
	@$(BUILD)/support > $(BUILD)/support.md && mv $(BUILD)/support.md tests/SUPPORT.md && echo 'tests/SUPPORT.md is written'

$(BUILD)/support: tests/samples.h tests/helpers.h tests/harness.h

coverage:
	@bash tests/ci/coverage.sh $(BUILD)/coverage

# What the header costs to compile and what an op costs; every row of tests/bench/workloads.c beside other libraries; then
# every op.
bench: $(BUILD)/workloads $(BUILD)/sweep $(if $(CUDA),$(BUILD)/device)
	$(if $(ROWS),,@bash tests/ci/figures.sh $(BUILD)/figures)
	@if command -v '$(TG_PYTHON)' >/dev/null; then \
	    '$(TG_PYTHON)' tests/bench/bench.py $(BENCH) $(if $(RESULTS),--results '$(RESULTS)') $(BUILD)/workloads $(ROWS); \
	else echo 'no $(TG_PYTHON): without other libraries'; OMP_PROC_BIND=true $(BUILD)/workloads quick; fi
	$(if $(CUDA),$(BUILD)/device)
	$(if $(ROWS),@echo 'skipped because ROWS is given: make bench-sweep',$(RUN_SWEEP))

bench-sweep: $(BUILD)/sweep
	$(RUN_SWEEP)

RUN_SWEEP = @if command -v '$(TG_PYTHON)' >/dev/null; then \
	    '$(TG_PYTHON)' tests/bench/sweep.py $(SWEEP) $(if $(RESULTS),--results '$(RESULTS)') $(BUILD)/sweep $(ROWS); \
	else echo 'skipped: PyTorch, as there is no $(TG_PYTHON); our times of the coarse grid alone'; $(BUILD)/sweep alone; fi

bench-quick: $(BUILD)/workloads
	@OMP_PROC_BIND=true $(BUILD)/workloads quick

# Of each macro that leaves a part of the library out, and of all together; TIMES=3: the least of three.
TIMES ?= 1
.PHONY: sizes
sizes:
	@CC='$(CC)' TIMES='$(TIMES)' bash tests/bench/sizes.sh $(BUILD)/sizes

examples: $(EXAMPLES)

picture: $(BUILD)/picture
	$(BUILD)/picture > examples/player.svg

manual:
	@command -v python3 >/dev/null || { echo 'make manual needs python3'; exit 1; }
	@python3 tests/tools/book.py manual out/manual.html

book:
	@command -v python3 >/dev/null || { echo 'make book needs python3'; exit 1; }
	@python3 tests/tools/book.py book out/book

# A page with the library inside, as WebAssembly: needs a clang that makes that and a libc for it.
WEB ?= out/web.html
WEB_CC ?= clang
WEB_COMPILE = $(WEB_CC) --target=wasm32-wasi -std=c99 -Os -ffp-contract=off -mexec-model=reactor -Wl,--strip-all

web: $(WEB)

$(WEB): examples/web/web.c examples/web/page.html examples/05_moons.c examples/sets.h tensorgrad.h
	@mkdir -p $(BUILD) $(dir $@)
	@echo 'int main(void) { return 0; }' > $(BUILD)/empty.c; $(WEB_COMPILE) $(BUILD)/empty.c -o $(BUILD)/web.wasm || { \
	    echo 'make web needs clang, lld and a libc for WebAssembly: apt-get install clang lld wasi-libc libclang-rt-dev-wasm32'; \
	    exit 1; }
	$(WEB_COMPILE) -I. examples/web/web.c -o $(BUILD)/web.wasm -lm
	@{ sed '/^@WASM@$$/,$$d' examples/web/page.html && base64 -w 0 $(BUILD)/web.wasm && echo && \
	    sed '1,/^@WASM@$$/d' examples/web/page.html; } > $@.part && mv $@.part $@
	@echo "$@: $$(wc -c < $@) bytes"

# Data-parallel training over MPI.
MPICC ?= mpicc
mpi: $(BUILD)/library.o
	@command -v $(MPICC) >/dev/null || { echo 'make mpi needs an MPI: apt-get install libopenmpi-dev openmpi-bin'; exit 1; }
	@mkdir -p out
	$(MPICC) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -DTG_COMPILED -o out/mpi_train examples/mpi/train.c $(BUILD)/library.o \
	    $(LDFLAGS) -lm $(LDLIBS)
	@echo 'mpirun -np 4 out/mpi_train'

# Models from the files of Hugging Face and torchvision.
models: $(BUILD)/library.o $(CUDA_OBJECT)
	@mkdir -p out
	for program in gpt2 llama bert vit resnet finetune; do $(CC) $(CPPFLAGS) $(CFLAGS) $(CUDA_FLAGS) $(OPENMP) -DTG_COMPILED -o out/$$program \
	    examples/models/$$program.c $(BUILD)/library.o $(CUDA_LIBS) $(LDFLAGS) -lm $(LDLIBS) || exit 1; done
	@echo 'out/llama FOLDER "Once upon a time", or out/gpt2; out/bert FOLDER "A [MASK]."; out/vit FOLDER IMAGE.ppm, or out/resnet;'
	@echo 'out/finetune FOLDER TEXT; alone each lists its options'

# A student's file, or another, and the grader, which ends with 1 unless all points are got.
LAB ?= examples/lab/answers.c
lab: $(BUILD)/library.o $(CUDA_OBJECT)
	@$(CC) -I. -Iexamples/lab $(CPPFLAGS) $(CFLAGS) $(CUDA_FLAGS) $(OPENMP) -DTG_COMPILED -o $(BUILD)/grade \
	    examples/lab/grade.c '$(LAB)' $(BUILD)/library.o $(CUDA_LIBS) $(LDFLAGS) -lm $(LDLIBS)
	@$(BUILD)/grade $(TASK)

# The library is compiled once for all tests and examples; an example is a whole program, too, and without TG_COMPILED it
# compiles the library itself, as `cc examples/05_moons.c -I. -lm` does.
$(BUILD)/library.o: tests/library.c tests/inside.h tensorgrad.h $(BUILD)/flags
	$(CC) -I. $(CPPFLAGS) $(CFLAGS) $(SANITIZE) $(CUDA_FLAGS) $(OPENMP) -c -o $@ $<

TOOLS := $(BUILD)/replay $(BUILD)/support $(BUILD)/copy_tensors $(BUILD)/picture
$(TESTS) $(EXAMPLES) $(BUILD)/fuzz_api $(TOOLS): $(BUILD)/library.o

$(EXAMPLES): $(BUILD)/%: examples/%.c $(wildcard examples/*.h) tensorgrad.h $(BUILD)/flags
	$(COMPILE) -DTG_COMPILED

# What the tests ask of the library is what takes time: their own lines are compiled without optimization, in a quarter of
# the time, and so without _FORTIFY_SOURCE, which wants it.
$(TESTS:=.o): $(BUILD)/%.o: tests/%.c tensorgrad.h $(wildcard tests/*.h) $(BUILD)/flags
	$(CC) -I. -I$(BUILD) $(CPPFLAGS) $(CFLAGS) -O0 -U_FORTIFY_SOURCE $(SANITIZE) $(CUDA_FLAGS) $(OPENMP) -c -o $@ $<

$(TESTS): $(BUILD)/%: $(BUILD)/%.o
	$(COMPILE)

$(TOOLS): $(BUILD)/%: tests/tools/%.c tensorgrad.h $(BUILD)/flags
	$(COMPILE)

$(BUILD)/check_output: tests/tools/check_output.c $(BUILD)/flags
	$(COMPILE)

$(BUILD)/device: tests/bench/device.c tests/cuda/models.h tensorgrad.h $(BUILD)/flags
	$(COMPILE)

BENCH_PARTS := $(patsubst %,$(BUILD)/bench_%.o,ops networks programs generation roof)

$(BUILD)/bench_generation.o: $(wildcard examples/models/*.[ch])
$(BENCH_PARTS): $(BUILD)/bench_%.o: tests/bench/%.c tests/bench/roof.h tests/bench/workloads.h tensorgrad.h $(BUILD)/flags
	$(CC) -I. $(CPPFLAGS) $(CFLAGS) $(OPENMP) -c -o $@ $<

$(BUILD)/workloads: tests/bench/workloads.c tests/bench/bits.h $(BENCH_PARTS) $(BUILD)/library.o
	$(COMPILE)

$(BUILD)/sweep: tests/bench/sweep.c tests/bench/bits.h tests/bench/cells.h tests/samples.h $(BUILD)/bench_roof.o $(BUILD)/library.o
	$(COMPILE)

# The declarations of the header as a table of calls; two programs include it and draw the arguments.
$(BUILD)/declarations: tests/api/declarations.c $(BUILD)/flags
	$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(LDFLAGS)

$(BUILD)/api_calls.h: $(BUILD)/declarations tensorgrad.h
	$(BUILD)/declarations tensorgrad.h $@

$(BUILD)/fuzz_api $(BUILD)/test_api.o: $(BUILD)/api_calls.h tests/api/draw.h tests/api/recipes.h
$(BUILD)/fuzz_api: tests/api/fuzz_api.c tensorgrad.h $(BUILD)/flags
	$(COMPILE)

# Sanitizers are used where a program of this compiler with them can be built and run.
ifneq ($(filter fuzz,$(MAKECMDGOALS)),)
SANITIZE := $(shell mkdir -p $(BUILD) && cd $(BUILD) && echo 'int main(void) { return 0; }' > sanitize.c && \
    $(CC) -fsanitize=address,undefined sanitize.c -o sanitize 2> sanitize.log && ./sanitize && \
    echo -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined)
$(info sanitizers: $(or $(SANITIZE),none))
endif
fuzz: $(BUILD)/fuzz_api
	$(BUILD)/fuzz_api --seed $(SEED) --seconds $(SECONDS)

# Changes when the compiler or a flag does, so that everything is built again.
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD)
	@echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(SANITIZE) $(OPENMP) $(if $(CUDA_FLAGS),$(NVCC) $(NVCCFLAGS)) $(LDFLAGS) $(LDLIBS)' > $@.$$$$; \
	cmp -s $@.$$$$ $@ && rm $@.$$$$ || mv $@.$$$$ $@

# Below DESTDIR a package is put together that will be at PREFIX.
ROOT = $(DESTDIR)$(PREFIX)
FILL_IN = sed -e 's|@VERSION@|$(VERSION)|' -e 's|@PREFIX@|$(PREFIX)|' examples/package
PLACES := include share/pkgconfig share/cmake/tensorgrad share/doc/tensorgrad
INSTALLED := include/tensorgrad.h include/tensorgrad_cuda.cu share/pkgconfig/tensorgrad.pc share/doc/tensorgrad/LICENSE \
    share/cmake/tensorgrad/tensorgrad-config.cmake share/cmake/tensorgrad/tensorgrad-config-version.cmake

install:
	@case '$(PREFIX)' in *[!A-Za-z0-9_./+-]* | [!/]* | '') echo "PREFIX is '$(PREFIX)': make install needs a path that begins with /, \
	of letters, digits and _./+-"; exit 1;; esac
	mkdir -p $(PLACES:%='$(ROOT)/%')
	install -m 644 tensorgrad.h tensorgrad_cuda.cu '$(ROOT)/include'
	install -m 644 LICENSE '$(ROOT)/share/doc/tensorgrad'
	install -m 644 examples/package/tensorgrad-config.cmake '$(ROOT)/share/cmake/tensorgrad'
	$(FILL_IN)/tensorgrad-config-version.cmake.in > '$(ROOT)/share/cmake/tensorgrad/tensorgrad-config-version.cmake'
	$(FILL_IN)/tensorgrad.pc.in > '$(ROOT)/share/pkgconfig/tensorgrad.pc'
	chmod 644 '$(ROOT)/share/cmake/tensorgrad/tensorgrad-config-version.cmake' '$(ROOT)/share/pkgconfig/tensorgrad.pc'

uninstall:
	rm -f $(INSTALLED:%='$(ROOT)/%')
	-@rmdir '$(ROOT)/share/cmake/tensorgrad' '$(ROOT)/share/doc/tensorgrad' 2>/dev/null || true

# The files of the last commit.  Its date is theirs, and gzip adds none: a commit gives the same bytes each time.
DIST = out/tensorgrad-$(VERSION).tar
dist:
	@git rev-parse -q --verify HEAD:Makefile >/dev/null 2>&1 && git ls-files --error-unmatch Makefile >/dev/null 2>&1 || { echo 'make dist needs git and a checkout with a commit'; exit 1; }
	@mkdir -p out
	git -c tar.umask=0022 archive --format=tar --prefix=tensorgrad-$(VERSION)/ HEAD > $(DIST)
	gzip -9 -n -f $(DIST)

include tests/cudasim/sim.mk
include tests/ptx/ptx.mk

clean:
	rm -rf $(BUILD) out

FORCE:

.PHONY: help demo test replay support picture check-examples check-deep coverage fuzz bench bench-quick bench-sweep examples mpi models lab manual book web install uninstall dist clean FORCE
