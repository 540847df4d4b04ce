# The targets of tensorgrad, for find_package and for CMakeLists.txt beside this file:
#     tensorgrad::tensorgrad  the header; one file of the program defines TENSORGRAD_IMPLEMENTATION before the include
#     tensorgrad::compiled    the header and the library, compiled once; no file needs the define
#     tensorgrad::cuda        the CUDA backend, if TENSORGRAD_CUDA is ON; tensorgrad::compiled then uses it, too
# CMAKE_CUDA_ARCHITECTURES says which GPUs it is compiled for, as "native" for the one of this machine.
option(TENSORGRAD_CUDA "compile tensorgrad_cuda.cu, with nvcc" OFF)

if(NOT DEFINED TENSORGRAD_INCLUDE_DIR)
    get_filename_component(TENSORGRAD_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)
endif()

if(NOT TARGET tensorgrad::tensorgrad)
    add_library(tensorgrad::tensorgrad INTERFACE IMPORTED GLOBAL)
    set_target_properties(tensorgrad::tensorgrad PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES "${TENSORGRAD_INCLUDE_DIR}"
        INTERFACE_LINK_LIBRARIES "$<$<PLATFORM_ID:Linux,FreeBSD,OpenBSD,NetBSD,Android>:m>")

    # As C, or as C++ in a project without C.  Nothing is compiled unless something is linked with it.
    get_property(tensorgrad_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    if("C" IN_LIST tensorgrad_languages)
        set(tensorgrad_source "${CMAKE_CURRENT_BINARY_DIR}/tensorgrad.c")
    else()
        set(tensorgrad_source "${CMAKE_CURRENT_BINARY_DIR}/tensorgrad.cpp")
    endif()
    file(WRITE "${tensorgrad_source}.new" "#define TENSORGRAD_IMPLEMENTATION\n#include \"tensorgrad.h\"\n")
    configure_file("${tensorgrad_source}.new" "${tensorgrad_source}" COPYONLY)
    add_library(tensorgrad_compiled STATIC EXCLUDE_FROM_ALL "${tensorgrad_source}")
    target_link_libraries(tensorgrad_compiled PUBLIC tensorgrad::tensorgrad)
    target_compile_definitions(tensorgrad_compiled INTERFACE TG_COMPILED)
    set_target_properties(tensorgrad_compiled PROPERTIES OUTPUT_NAME tensorgrad POSITION_INDEPENDENT_CODE ON)
    add_library(tensorgrad::compiled ALIAS tensorgrad_compiled)

    if(TENSORGRAD_CUDA)
        enable_language(CUDA) # known in this folder alone: a program in another one gets the runtime from CUDA::cudart
        find_package(CUDAToolkit REQUIRED)
        add_library(tensorgrad_cuda STATIC EXCLUDE_FROM_ALL "${TENSORGRAD_INCLUDE_DIR}/tensorgrad_cuda.cu")
        target_link_libraries(tensorgrad_cuda PUBLIC tensorgrad::tensorgrad CUDA::cudart CUDA::cublas CUDA::cublasLt)
        target_compile_definitions(tensorgrad_cuda INTERFACE TG_ENABLE_CUDA)
        set_target_properties(tensorgrad_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
        target_link_libraries(tensorgrad_compiled PUBLIC tensorgrad_cuda)
        add_library(tensorgrad::cuda ALIAS tensorgrad_cuda)
    endif()
endif()
