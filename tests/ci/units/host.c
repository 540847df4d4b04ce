/* host PLUGIN: a program that opens a plugin fifty times, calls its function `plugin` and closes it; each time it is out of the
 * process afterwards, and from the twentieth time on no byte of the heap more is in use: malloc counts what it keeps of small
 * blocks as in use, up to seven of each size.  Only where the C library counts. */
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

static size_t in_use(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* What the function of the plugin returns, and -1 if it cannot be called or the plugin stays. */
static int call(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = plugin ? dlsym(plugin, "plugin") : NULL;
    int (*function)(void) = NULL, result = -1;
    memcpy(&function, &symbol, sizeof symbol); /* C has no cast from void * to a function */
    if (function) result = function();
    if (!plugin || dlclose(plugin) != 0) return -1;
    return dlopen(path, RTLD_NOW | RTLD_NOLOAD) ? -1 : result;
}

int main(int argc, char **argv)
{
    size_t early = 0, late = 0;
    for (int turn = 1; turn <= 50; ++turn) {
        int result = argc == 2 ? call(argv[1]) : -1;
        if (result != 0) return printf("turn %d: %d\n", turn, result), 1;
        late = in_use();
        if (turn == 20) early = late;
    }
    printf("bytes in use after 20 turns %zu, after 50 turns %zu\n", early, late);
    return early != late;
}
