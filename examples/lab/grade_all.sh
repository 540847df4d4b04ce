#!/bin/sh
# grade_all.sh FOLDER: grades FOLDER/NAME.c, the tasks.c of each student, and writes FOLDER/points.csv: a line per student
# with the points of each task and their sum.  FOLDER/NAME.tap gets what the grader says, for the student; FOLDER/NAME.log what
# the compiler, the sanitizers and the solution itself print.  A file that does not compile has 0 points.
#
# GRADER is the grader with the library, compiled once (grade.o beside this script, made when it is missing); CC and CFLAGS
# are honoured.
folder=${1:?usage: grade_all.sh FOLDER, with a NAME.c for each student}
here=$(dirname "$0")
grader=${GRADER:-$here/grade.o}
tasks='tanh mul matmul softmax cross_entropy layer_norm descend'
[ -f "$grader" ] || ${CC:-cc} -O2 -c "$here/grade.c" -o "$grader" || exit 1
program=$(mktemp) || exit 1
trap 'rm -f "$program"' EXIT

# points TAP TASK: what it got, 0 without a line of it
points()
{
    n=$(sed -n "s/^ok [0-9]* - $2: \([0-9]*\) of .*/\1/p" "$1")
    echo "${n:-0}"
}

echo "student,$(echo $tasks | tr ' ' ,),points" >"$folder/points.csv"
for file in "$folder"/*.c; do
    [ -f "$file" ] || continue
    student=$(basename "$file" .c) line='' sum=0
    tap=$folder/$student.tap log=$folder/$student.log
    : >"$tap"
    if ${CC:-cc} ${CFLAGS:--g -fsanitize=address,undefined} -I"$here" "$file" "$grader" -lm -o "$program" >"$log" 2>&1; then
        "$program" >"$tap" 2>>"$log"
    fi
    for task in $tasks; do
        n=$(points "$tap" $task)
        line=$line,$n sum=$((sum + n))
    done
    echo "$student$line,$sum" >>"$folder/points.csv"
    echo "$student: $sum points"
done
