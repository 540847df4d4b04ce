/* check_output EXPECTED ACTUAL [TOLERANCE]: are two texts the same, up to rounding?

   Text must be equal, a run of blanks counts as one.  A number agrees with the expected one when they differ by at most
   TOLERANCE * max(1, |expected|); 1e-6 unless told.  Lines of the expected file that begin with #! are for this program,
   and hold for the lines after them:
       #! tolerance X      as above
       #! factor X         numbers have the same sign and differ by a factor of X at most: for errors and noise
       #! cells N          that many characters may differ in all the lines up to the next #! cells: for maps
   Prints the lines that differ; exit code 0 when none does. */
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    double tolerance, factor; /* factor 0: not in use */
    int cells;
} rules;

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "rb");
    const long size = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    char *text = size >= 0 ? (char *)malloc((size_t)size + 1) : NULL;
    size_t n = 0;
    if (text) {
        rewind(f);
        n = fread(text, 1, (size_t)size, f);
        text[n] = 0;
    }
    if (f) fclose(f);
    if (!text || n != (size_t)size || strlen(text) != n) {
        printf("check_output: %s: not there, not readable or not a text\n", path);
        exit(2);
    }
    return text;
}

/* Cuts the next line off *text, without its end; NULL when there is none. */
static char *next_line(char **text)
{
    char *line = *text, *end;
    if (!*line) return NULL;
    end = strchr(line, '\n');
    *text = end ? end + 1 : line + strlen(line);
    if (!end) end = *text;
    while (end > line && isspace((unsigned char)end[-1])) --end; /* blanks and \r at the end do not count */
    *end = 0;
    return line;
}

/* A number begins at p: a digit, perhaps after a sign and a point, that does not continue a word. */
static bool at_number(const char *line, const char *p)
{
    const char *digit = p;
    if (p > line && (isalnum((unsigned char)p[-1]) || p[-1] == '_' || p[-1] == '.')) return false;
    if (*digit == '-' || *digit == '+') ++digit;
    if (*digit == '.') ++digit;
    return isdigit((unsigned char)*digit) != 0;
}

static bool agree(double expected, double actual, const rules *r)
{
    if (expected == actual) return true;
    if (r->factor > 0) {
        const double ratio = expected != 0 ? actual / expected : 0;
        return ratio >= 1 / r->factor && ratio <= r->factor;
    }
    return fabs(expected - actual) <= r->tolerance * fmax(1, fabs(expected));
}

static bool same_line(const char *expected, const char *actual, const rules *r)
{
    const char *e = expected, *a = actual;
    while (*e || *a) {
        if (at_number(expected, e) && at_number(actual, a)) {
            char *e_end, *a_end;
            const double e_value = strtod(e, &e_end), a_value = strtod(a, &a_end);
            if (!agree(e_value, a_value, r)) return false;
            e = e_end, a = a_end;
        } else if (isspace((unsigned char)*e) && isspace((unsigned char)*a)) {
            while (isspace((unsigned char)*e)) ++e;
            while (isspace((unsigned char)*a)) ++a;
        } else if (isspace((unsigned char)*e) && e == expected) {
            ++e; /* blanks before the first word do not count */
        } else if (isspace((unsigned char)*a) && a == actual) {
            ++a;
        } else if (*e++ != *a++) {
            return false;
        }
    }
    return true;
}

/* How many characters differ, in a map: -1 when the lines are not of one length. */
static int different_cells(const char *expected, const char *actual)
{
    int n = 0;
    if (strlen(expected) != strlen(actual)) return -1;
    for (; *expected; ++expected, ++actual) n += *expected != *actual;
    return n;
}

static void obey(const char *line, rules *r)
{
    char word[32];
    double x = 0;
    if (sscanf(line, "#! %31s %lf", word, &x) == 2 && x >= 0) {
        if (!strcmp(word, "tolerance")) { r->tolerance = x, r->factor = 0; return; }
        if (!strcmp(word, "factor")) { r->factor = x; return; }
        if (!strcmp(word, "cells")) { r->cells = (int)x; return; }
    }
    printf("check_output: not understood: %s\n", line);
    exit(2);
}

int main(int argc, char **argv)
{
    rules r = {1e-6, 0, 0};
    char *expected_text, *actual_text, *expected, *actual, *expected_rest, *actual_rest;
    int differ = 0, line = 0;
    if (argc == 4) r.tolerance = strtod(argv[3], NULL);
    if (argc != 3 && argc != 4) return printf("usage: check_output EXPECTED ACTUAL [TOLERANCE]\n"), 2;
    expected_rest = expected_text = read_all(argv[1]);
    actual_rest = actual_text = read_all(argv[2]);
    for (;;) {
        expected = next_line(&expected_rest);
        if (expected && !strncmp(expected, "#!", 2)) {
            obey(expected, &r);
            continue;
        }
        actual = next_line(&actual_rest);
        if (!expected && !actual) break;
        ++line;
        if (expected && actual && same_line(expected, actual, &r)) continue;
        if (expected && actual && r.cells > 0) {
            const int cells = different_cells(expected, actual);
            if (cells >= 0 && cells <= r.cells) {
                r.cells -= cells;
                continue;
            }
        }
        if (++differ <= 10)
            printf("%s: line %d\n  expected: %s\n  actual:   %s\n", argv[2], line, expected ? expected : "(the end)",
                   actual ? actual : "(the end)");
    }
    if (differ > 10) printf("%s: and %d more lines that differ\n", argv[2], differ - 10);
    free(expected_text), free(actual_text);
    return differ != 0;
}
