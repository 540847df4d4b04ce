/* layer.h: a layer of plain tensors, which 14_device_tour.c moves in two ways; tutorials_modules.c moves modules. */
#ifndef LAYER_H
#define LAYER_H
#include "../tensorgrad.h"
#include <math.h>

typedef struct { tg_tensor *weight, *bias; } layer;

static inline layer make_layer(int inputs, int outputs)
{
    TG_SCOPE;
    layer l;
    l.weight = tg_param(tg_mul_scalar(tg_randn(TG_SHAPE(outputs, inputs)), 1 / sqrt(inputs)));
    l.bias = tg_param(tg_zeros(TG_SHAPE(outputs)));
    return l;
}

static inline void free_layer(layer l)
{
    tg_release(l.weight);
    tg_release(l.bias);
}

/* As a tensor is moved: out of place, and gradients of the moved layer come back to the parameters of this one. */
static inline layer layer_to(layer l, tg_device device)
{
    l.weight = tg_to(l.weight, device);
    l.bias = tg_to(l.bias, device);
    return l;
}

/* As a PyTorch module is moved: in place.  The parameters are new leaves there, and the old ones end. */
static inline void move_layer(layer *l, tg_device device)
{
    TG_SCOPE;
    TG_NO_GRAD;
    const layer moved = layer_to(*l, device);
    if (moved.weight == l->weight) return;
    free_layer(*l);
    l->weight = tg_param(moved.weight);
    l->bias = tg_param(moved.bias);
}
#endif
