/* tests/semantics.txt compared with what ran: a line for every row of sections 1 and 2 of the semantics list,
 *     2.14 | test_autograd graph_basics | test_moves more_of_it       the programs and tests that check the row
 *     1.29 | n/a | not offered: no type strings                       or why none does
 * and one for every wrong belief about moves that a test refutes, "002:40 | test_moves mixed_devices".
 * Each program compares its own part: what is listed for it ran, and what ran is listed.  One program checks the form of
 * the file.  C99 and C++11. */
#ifndef SEMANTICS_H
#define SEMANTICS_H

#include "harness.h"

static const int section_rows[] = {0, 125, 95};
typedef struct {
    char row[16];
    char program[4][80], test[4][80]; /* program "n/a": test is empty, and why says the reason */
    int n;
    const char *why;
} semantics_line;

/* The next line that is no comment; text is where it is kept. */
static inline bool read_semantics_line(FILE *file, char *text, int size, semantics_line *l)
{
    memset(l, 0, sizeof *l);
    do {
        if (!fgets(text, size, file)) return false;
    } while (text[0] == '#' || text[0] == '\n');
    snprintf(l->row, sizeof l->row, "%.*s", (int)strcspn(text, " |"), text);
    for (const char *field = strchr(text, '|'); field && l->n < 4; field = strchr(field, '|')) {
        sscanf(++field, " %79[^ |\n] %79[^ |\n]", l->program[l->n], l->test[l->n]);
        if (strcmp(l->program[l->n++], "n/a") != 0) continue;
        const char *bar = strchr(field, '|');
        l->why = bar ? bar + 1 : "";
        break;
    }
    return true;
}

/* Marks a row that ran in this test as listed; false if it did not run there. */
static inline bool row_listed(const char *row, const char *test, bool *listed)
{
    bool found = false;
    for (int i = 0; i < harness.row_count; ++i) {
        if (strcmp(harness.rows[i].row, row) || strcmp(harness.rows[i].test, test)) continue;
        listed[i] = found = true;
    }
    return found;
}

static inline FILE *open_semantics(void)
{
    FILE *file = fopen("tests/semantics.txt", "r"); /* from the root of the repository */
    harness.test = "semantics.txt", harness.row = NULL;
    CHECK(file != NULL);
    return file;
}

/* For the end of a program.  A run of only some tests is not compared. */
static inline void check_rows(const char *program)
{
    static bool listed[HARNESS_ROWS];
    static semantics_line l;
    char text[512];
    int missing = 0;
    if (harness.only || harness.parts > 1) return;
    FILE *file = open_semantics();
    if (!file) return;
    while (read_semantics_line(file, text, sizeof text, &l)) {
        harness.sample = l.row;
        for (int i = 0; i < l.n; ++i) {
            if (strcmp(l.program[i], program) == 0) CHECK(row_listed(l.row, l.test[i], listed));
        }
        harness.sample = NULL;
    }
    fclose(file);
    CHECK(harness.row_count < HARNESS_ROWS);
    for (int i = 0; i < harness.row_count; ++i) {
        if (listed[i]) continue;
        printf("tests/semantics.txt: row %s ran in %s %s, but is not listed there\n", harness.rows[i].row, program,
               harness.rows[i].test);
        ++missing;
    }
    CHECK(missing == 0);
}

/* The form of the file: every row once, with a test or the reason why there is none. */
static inline void check_semantics_form(void)
{
    static bool seen[3][128];
    static semantics_line l;
    char text[512];
    int missing = 0;
    if (harness.only || harness.parts > 1) return;
    FILE *file = open_semantics();
    if (!file) return;
    while (read_semantics_line(file, text, sizeof text, &l)) {
        int section = 0, number = 0;
        harness.sample = l.row;
        CHECK(l.n > 0);
        for (int i = 0; i < l.n; ++i) {
            if (strcmp(l.program[i], "n/a") == 0)
                CHECK(l.n == 1 && !l.test[i][0] && strlen(l.why) > 4);
            else
                CHECK(strncmp(l.program[i], "test_", 5) == 0 && l.test[i][0]);
        }
        if (!strchr(l.row, ':')) { /* not a belief */
            sscanf(l.row, "%d.%d", &section, &number);
            if (CHECK(section >= 1 && section <= 2 && number >= 1 && number <= section_rows[section])) {
                CHECK(!seen[section][number]); /* once */
                seen[section][number] = true;
            }
        }
        harness.sample = NULL;
    }
    fclose(file);
    for (int section = 1; section <= 2; ++section) {
        for (int number = 1; number <= section_rows[section]; ++number) {
            if (seen[section][number]) continue;
            printf("tests/semantics.txt: row %d.%d is missing\n", section, number);
            ++missing;
        }
    }
    CHECK(missing == 0);
}

#endif
