/* tests/semantics.txt held against what ran: a line for every row of sections 1 and 2 of the semantics list,
 *     2.14 | test_engine graph_basics | test_moves more_of_it         who holds it, and in which test
 *     1.29 | n/a | not offered: no type strings                       or why nobody does
 * and one for every wrong belief about moves that a test refutes, "002:40 | test_moves mixed_devices".
 * Each program holds its own part: what is listed for it ran, and what ran is listed.  C99 and C++11. */
#ifndef SEMANTICS_H
#define SEMANTICS_H

#include "harness.h"

static const int section_rows[] = {0, 125, 95};

/* Marks a row that ran in this test as listed; false if it did not run there. */
static inline bool row_listed(const char *row, const char *test, bool *listed)
{
    int i;
    bool found = false;
    for (i = 0; i < harness.row_count; ++i) {
        if (strcmp(harness.rows[i].row, row) || (test && strcmp(harness.rows[i].test, test))) continue;
        listed[i] = found = true;
    }
    return found;
}

/* One line for this program; copies the row's name. */
static inline void check_row_line(char *line, const char *program, char *row, size_t size, bool *listed)
{
    char *field = strchr(line, '|'), file[80], test[80];
    bool somewhere = false;
    snprintf(row, size, "%.*s", (int)strcspn(line, " |"), line);
    harness.sample = row;
    while (field) {
        char *next = strchr(++field, '|');
        file[0] = test[0] = 0;
        sscanf(field, " %79[^ |\n] %79[^ |\n]", file, test);
        if (strcmp(file, "n/a") == 0) {
            CHECK(!test[0] && !somewhere && next && strlen(next) > 6 && !row_listed(row, NULL, listed));
            somewhere = true;
            break;
        }
        CHECK(test[0]);
        if (strcmp(file, program) == 0) CHECK(row_listed(row, test, listed));
        somewhere = true;
        field = next;
    }
    CHECK(somewhere);
    harness.sample = NULL;
}

static inline void check_rows(const char *path, const char *program)
{
    static bool seen[3][128], listed[HARNESS_ROWS];
    FILE *file = fopen(path, "r");
    char line[512], row[16];
    int section, number, missing = 0, i;
    harness.test = "semantics.txt", harness.row = NULL;
    CHECK(harness.row_count < HARNESS_ROWS);
    if (!CHECK(file != NULL)) return; /* run it from the top of the repository */
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || line[0] == '\n') continue;
        check_row_line(line, program, row, sizeof row, listed);
        if (strchr(row, ':')) continue; /* a belief */
        section = number = 0;
        sscanf(row, "%d.%d", &section, &number);
        harness.sample = row;
        if (CHECK(section >= 1 && section <= 2 && number >= 1 && number <= section_rows[section])) {
            CHECK(!seen[section][number]); /* once */
            seen[section][number] = true;
        }
        harness.sample = NULL;
    }
    fclose(file);
    for (section = 1; section <= 2; ++section) {
        for (number = 1; number <= section_rows[section]; ++number) {
            if (seen[section][number]) continue;
            printf("%s: row %d.%d is missing\n", path, section, number);
            ++missing;
        }
    }
    for (i = 0; i < harness.row_count; ++i) {
        if (listed[i]) continue;
        printf("%s: row %s ran in %s %s, but is not listed there\n", path, harness.rows[i].row, program,
               harness.rows[i].test);
        ++missing;
    }
    CHECK(missing == 0);
}

#endif
