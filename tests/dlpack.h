/* The structs of DLPack 1.0, as a program gets them from dlpack.h, and structs of a library of the tests' own.  Include it
 * after tensorgrad.h.  C99 and C++11. */
#ifndef TESTS_DLPACK_H
#define TESTS_DLPACK_H

#include <string.h>

typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLOpenCL = 4 } DLDeviceType;
typedef struct { DLDeviceType device_type; int32_t device_id; } DLDevice;
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLOpaqueHandle = 3, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
typedef struct { uint32_t major, minor; } DLPackVersion;
enum { READ_ONLY = 1 };
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* A struct of another library, of either kind, for memory of the program, with a count of its deletions. */
enum { LENT_DIMS = 12 };
typedef struct {
    DLManagedTensorVersioned managed;
    DLManagedTensor unversioned;
    int64_t shape[LENT_DIMS], strides[LENT_DIMS];
    int deleted;
} lent_tensor;

static inline void delete_lent(DLManagedTensorVersioned *self) { ((lent_tensor *)self->manager_ctx)->deleted++; }
static inline void delete_unversioned(DLManagedTensor *self) { ((lent_tensor *)self->manager_ctx)->deleted++; }

/* f32 elements at `data`, of this shape; strides may be NULL. */
static inline DLManagedTensorVersioned *lent_of(lent_tensor *f, void *data, int ndim, const int64_t *shape,
                                                   const int64_t *strides)
{
    int i;
    memset(f, 0, sizeof *f);
    for (i = 0; i < ndim && i < LENT_DIMS; ++i) {
        f->shape[i] = shape[i];
        if (strides) f->strides[i] = strides[i];
    }
    f->managed.version.major = 1;
    f->managed.version.minor = 3; /* later ones of this major version are laid out alike */
    f->managed.manager_ctx = f;
    f->managed.deleter = delete_lent;
    f->managed.dl_tensor.data = data;
    f->managed.dl_tensor.device.device_type = kDLCPU;
    f->managed.dl_tensor.ndim = ndim;
    f->managed.dl_tensor.dtype.code = kDLFloat;
    f->managed.dl_tensor.dtype.bits = 32;
    f->managed.dl_tensor.dtype.lanes = 1;
    f->managed.dl_tensor.shape = f->shape;
    f->managed.dl_tensor.strides = strides ? f->strides : NULL;
    f->unversioned.dl_tensor = f->managed.dl_tensor;
    f->unversioned.manager_ctx = f;
    f->unversioned.deleter = delete_unversioned;
    return &f->managed;
}

#endif
