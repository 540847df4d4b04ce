/* dlpack.h itself beside tensorgrad.h, in front of it or behind it (-DBEHIND), and in front of the implementation: the names of
 * one do not meet those of the other, and the structs of the library and of the tests are those of dlpack.h. */
#ifdef BEHIND
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include DLPACK
#else
#include DLPACK
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#endif
#include <stdio.h>

#define SAME(type, ours, member, our_member)                                                              \
    do {                                                                                                  \
        if (offsetof(type, member) == offsetof(ours, our_member)) break;                                  \
        printf("%s: %s is at %d, not at %d\n", #type, #member, (int)offsetof(type, member),               \
               (int)offsetof(ours, our_member));                                                          \
        return 1;                                                                                         \
    } while (0)

int main(void)
{
    tg_tensor *t = tg_transpose(tg_view(tg_arange(0, 6, 1), TG_SHAPE(2, 3)), 0, 1), *back;
    struct DLManagedTensorVersioned *m = tg_to_dlpack(t);
    struct DLManagedTensor *older = tg_to_dlpack_unversioned(t);
    SAME(struct DLManagedTensorVersioned, tgi_dl_versioned, version, major);
    SAME(struct DLManagedTensorVersioned, tgi_dl_versioned, manager_ctx, context);
    SAME(struct DLManagedTensorVersioned, tgi_dl_versioned, deleter, deleter);
    SAME(struct DLManagedTensorVersioned, tgi_dl_versioned, flags, flags);
    SAME(struct DLManagedTensorVersioned, tgi_dl_versioned, dl_tensor, tensor);
    SAME(struct DLManagedTensor, tgi_dl_unversioned, dl_tensor, tensor);
    SAME(struct DLManagedTensor, tgi_dl_unversioned, manager_ctx, context);
    SAME(struct DLManagedTensor, tgi_dl_unversioned, deleter, deleter);
    SAME(DLTensor, tgi_dl_tensor, device, device);
    SAME(DLTensor, tgi_dl_tensor, ndim, ndim);
    SAME(DLTensor, tgi_dl_tensor, dtype, dtype);
    SAME(DLTensor, tgi_dl_tensor, shape, shape);
    SAME(DLTensor, tgi_dl_tensor, strides, strides);
    SAME(DLTensor, tgi_dl_tensor, byte_offset, byte_offset);
    SAME(DLDevice, tgi_dl_device, device_id, index);
    SAME(DLDataType, tgi_dl_dtype, bits, bits);
    SAME(DLDataType, tgi_dl_dtype, lanes, lanes);
    if (sizeof(struct DLManagedTensorVersioned) != sizeof(tgi_dl_versioned)) return 2;
    if (sizeof(struct DLManagedTensor) != sizeof(tgi_dl_unversioned)) return 2;
    if ((int)kDLInt != TGI_DL_INT || (int)kDLUInt != TGI_DL_UINT || (int)kDLFloat != TGI_DL_FLOAT) return 3;
    if ((int)kDLBfloat != TGI_DL_BFLOAT || (int)kDLComplex != TGI_DL_COMPLEX || (int)kDLBool != TGI_DL_BOOL) return 3;
    if ((int)kDLOpaqueHandle != TGI_DL_HANDLE || DLPACK_FLAG_BITMASK_READ_ONLY != TGI_DL_READ_ONLY) return 3;
    if (kDLCPU != 1 || kDLCUDA != 2) return 3;
    if (!m || m->version.major != 1 || m->dl_tensor.device.device_type != kDLCPU || m->dl_tensor.shape[0] != 3) return 4;
    if (m->dl_tensor.strides[1] != 3 || m->dl_tensor.dtype.code != kDLFloat || m->dl_tensor.dtype.bits != 32) return 4;
    ((float *)m->dl_tensor.data)[3] = 7;
    back = tg_from_dlpack(m);
    if (tg_get(back, TG_INDEX(0, 1)) != 7 || !older) return 5;
    older->deleter(older);
    tg_shutdown();
    return tg_ok() ? 0 : 6;
}
