/* names.h: the names that 07_bigram.c and 08_names.c learn from: the words of a file, or else a short list. */
#ifndef NAMES_H
#define NAMES_H
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Letters are 1 to 26; 0 is the end of a name, and what comes before its first letter. */
enum { LETTERS = 27, MOST_NAMES = 40000, LONGEST = 15 };

static char names[MOST_NAMES][LONGEST + 1]; /* each ended by 0 */
static int name_count;

static const char *const some_names =
    "ada adam alan albert alice amelia anna anton arthur barbara bruno camille carla carlos charles clara claude cora "
    "daniel david diana dora edgar edith eleanor elena ella elsa emil emilia emma ester eugene eva evelyn felix fiona "
    "florian frances gabriel george gloria grace greta hannah harold helen henry herman hugo ida ingrid irene isaac "
    "ivan jacob jasmin joan john jonas joseph julia julian karen karl laura leo leon leonard lena linda lisa louis "
    "louise lucas lucy lydia maria marie mark marta martin max maya michael mila miriam monica nathan nina nora "
    "norman olga oliver olivia oscar paul paula peter philip ralph richard rita robert robin roman rosa ruth samuel "
    "sandra sara simon sofia stella susan sylvia theresa thomas tina vera victor viola walter william yvonne zoe";

/* The text of a file; empty if it cannot be read. */
static inline const char *read_text(const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
    if (file) fclose(file);
    return text;
}

/* Names are the words of a text; longer ones than LONGEST are left out. */
static inline void add_names(const char *text)
{
    for (; *text && name_count < MOST_NAMES; text += *text != 0) {
        int length = 0;
        for (; isalpha((unsigned char)*text); ++text, ++length) {
            if (length < LONGEST) names[name_count][length] = (char)tolower((unsigned char)*text);
        }
        names[name_count][length < LONGEST ? length : LONGEST] = 0;
        if (length > 0 && length <= LONGEST) ++name_count;
    }
}

/* Finds the names of this file, or without one those of names.txt in the folder that the variable TG_DATA of the
   environment names, or without that those of the list.  How many there are; says so if there are none. */
static inline int find_names(const char *path)
{
    char in_folder[1024];
    const char *folder = getenv("TG_DATA");
    if (!path && folder && *folder) {
        snprintf(in_folder, sizeof in_folder, "%s/names.txt", folder);
        path = in_folder;
    }
    add_names(path ? read_text(path) : some_names);
    if (name_count == 0) printf("%s: there are no names\n", path);
    return name_count;
}

/* Letter k of name i as a number; 0 behind its last. */
static inline int letter_of(int i, int k) { return k < LONGEST && names[i][k] ? names[i][k] - 'a' + 1 : 0; }

static inline bool is_known(const char *name)
{
    for (int i = 0; i < name_count; ++i) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}
#endif
