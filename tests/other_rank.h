/* An engine of tg_parallel whose other rank always has what this one has; sums stay what they are, and all is in host memory. */
static const char *same_sum(void *context, void *data, int64_t count, tg_dtype dtype, tg_device device)
{
    (void)context, (void)data, (void)count, (void)dtype, (void)device;
    return NULL;
}

static const char *same_broadcast(void *context, void *data, int64_t bytes, int root, tg_device device)
{
    (void)context, (void)data, (void)bytes, (void)root, (void)device;
    return NULL;
}

static const char *same_gather(void *context, const void *data, void *all, int64_t bytes, tg_device device)
{
    (void)context;
    if (!tg_device_equal(device, TG_CPU)) return "an engine for the memory of the host alone";
    memcpy(all, data, (size_t)bytes);
    memcpy((char *)all + bytes, data, (size_t)bytes);
    return NULL;
}

static const tg_comm other_rank = {NULL, 0, 2, same_sum, same_broadcast, same_gather, NULL, NULL, NULL};
