/* With TG_LINES: the header stands before the implementation, as other headers may include it, and once more behind it. */
#include "tensorgrad.h"
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "tensorgrad.h"
#include <string.h>

#define TEXT(line) TEXT_OF(line)
#define TEXT_OF(line) #line

int main(void)
{
    tg_tensor *a = tg_ones(TG_SHAPE(2));
    tg_set_error_handler(NULL, NULL);
    const char *here = "\n  at " __FILE__ ":" TEXT(__LINE__), *message = tg_reshape(a, TG_SHAPE(3)) ? "" : tg_error_message();
    if (strlen(message) < strlen(here) || strcmp(message + strlen(message) - strlen(here), here)) return 1;
    return tg_shutdown() == TG_OK ? 0 : 1;
}
