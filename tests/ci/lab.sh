#!/usr/bin/env bash
# lab.sh LIBRARY FOLDER: the lab of examples/lab: the answers get all points, tasks.c as it is handed out none, and each of wrong/
# what its first comment says, which costs the points of one task, be it a crash or an endless loop; what the grader writes is TAP;
# exit codes; sanitizers name a student's line; a folder of students becomes a table.  Prints what it takes, for LECTURER.md.
# LIBRARY: tests/library.c, compiled, for a grader that makes no processes.
set -u
library=$(realpath "$1") passed=0 failed=0
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }
can() { bash "$root/tests/ci/can.sh" "$@"; }
TIMEFORMAT='%U %S'
seconds() { { time "$@" >>"$log" 2>&1; } 2>&1 | awk '{ printf "%.2f", $1 + $2 }'; }

# tap FILE: is it TAP: version, plan, lines numbered from 1 as planned, nothing else but comments?
tap()
{
    awk 'NR == 1 { bad = $0 != "TAP version 13"; next }
        NR == 2 { bad = bad || !/^1\.\.[0-9]+$/; plan = substr($0, 4); next }
        /^# / { next }
        !/^(not )?ok [0-9]+ - [a-z_]+: [0-9]+ of [0-9]+ points(, [^#]+)?$/ { bad = 1 }
        { sub(/^not /, ""); bad = bad || $2 != ++n }
        END { exit bad || n + 0 != plan }' "$1"
}

# grades NAME FILE [ARGUMENTS...]: the exit code of the grader with FILE, linked as NAME; what it says is in NAME.tap, NAME.err
grades()
{
    local name=$1 file=$2
    cc -std=c99 "$file" grade.o -lm -o "$name" || return 99
    shift 2
    timeout 100 "./$name" "$@" >"$name.tap" 2>"$name.err"
}

# told FILE: what the first comment of a wrong solution says that it gets; said NAME: what it got.  As one line each.
told()
{
    awk 'found { print } /What it gets:/ { found = 1 } /\*\// { exit }' "$1" | sed 's|\*/||' | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'
}
said() { sed -n '/^not ok/,/^\(# gradcheck \|# [0-9]* of 100\|ok\)/p' "$1.tap" | sed '$d' | tr -s ' \n' ' ' | sed 's/ $//'; }

# What the sheet tells to do, in a copy; without optimization, which takes long.
root=$(pwd) log=$(realpath -m "$2")/log.txt
rm -rf "$2" && mkdir -p "$2/examples" && cp tensorgrad.h "$2" && cp -r examples/lab examples/LECTURER.md "$2/examples" && cd "$2/examples/lab" || exit 1
sanitize='-fsanitize=address,undefined'
can cc $sanitize || sanitize=
while read -r line; do
    line=${line/-O2/-O0}
    eval "${line/-fsanitize=address,undefined/$sanitize}"
    verdict $? "$line"
done < <(grep '^cc ' README.md)
[ "$(grep -A 3 '^cc -O2' README.md)" = "$(grep -A 3 '^cc -O2' ../LECTURER.md)" ]
verdict $? "the page for lecturers tells the same"
./grade >unfilled.tap
[ $? -eq 1 ] && tap unfilled.tap && [ "$(grep -c '^not ok .*, not filled in: ' unfilled.tap)" -eq 7 ] &&
    grep -qx '# 0 of 100 points' unfilled.tap && [ "$(wc -l <unfilled.tap)" -eq 10 ]
verdict $? "tasks.c as it is handed out gets a line for each task"

grades answers answers.c && tap answers.tap && grep -qx '# 100 of 100 points' answers.tap && [ ! -s answers.err ]
verdict $? "answers.c gets all points"
if command -v prove >/dev/null; then prove -e '' ./answers >>"$log" 2>&1; verdict $? "prove takes it for TAP"; fi
for file in wrong/*.c; do
    name=$(basename "$file" .c)
    grades "$name" "$file"
    verdict $(($? != 1)) "$name has exit code 1"
    tap "$name.tap"
    verdict $? "$name: TAP"
    [ -n "$(told "$file")" ] && [ "$(told "$file")" = "$(said "$name")" ]
    verdict $? "$file says it gets \"$(told "$file")\", but it got \"$(said "$name")\""
    [ "$(grep -c '^ok' "$name.tap")" -eq 6 ] && grep -qxE '# (85|90) of 100 points' "$name.tap"
    verdict $? "$name costs one task alone"
done
[ "$(told wrong/crash.c)" != "$(said endless)" ]
verdict $? "another message is noticed"

# One task; tasks that there are not; a grader without processes.
grades one wrong/mul_averaged.c 3 && tap one.tap && grep -q '^ok 1 - matmul: 15 of 15 points$' one.tap && [ "$(wc -l <one.tap)" -eq 4 ]
verdict $? "a right task of a wrong solution, alone"
grades one wrong/mul_averaged.c 2
[ $? -eq 1 ] && tap one.tap && grep -q '^not ok 1 - mul: 0 of 15 points, mul_backward is wrong$' one.tap
verdict $? "a wrong task alone"
for arguments in 0 8 -1 matmul '1 2'; do
    ./one $arguments >one.tap 2>one.err
    [ $? -eq 2 ] && [ ! -s one.tap ] && grep -q '^usage: .* a number from 1 to 7$' one.err
    verdict $? "arguments $arguments are refused"
done
openmp=$(can cc -fopenmp && echo -fopenmp) # as LIBRARY may have it
for name in answers tasks; do
    cc -std=c99 -DTG_COMPILED -DLAB_NO_FORK grade.c $name.c "$library" $openmp -lm -o alone && ./alone >alone.tap
    [ $? -eq $((${#name} == 5)) ] && tap alone.tap && tail -n 1 alone.tap | grep -qxE '# (100|0) of 100 points' && ! cmp -s alone.tap one.tap
    verdict $? "$name without processes"
done
cmp -s alone.tap unfilled.tap
verdict $? "without processes it says the same"

# A folder of students: right, wrong, with a lie on stdout, past the end of an array, and one that does not compile.
mkdir students
cp answers.c students/ann.c
sed 's|"\.\./|"|' wrong/mul_unsummed.c >students/bob.c
echo 'this is no C' >students/cleo.c
{ echo '#include <stdio.h>'; sed '/^double descend/,$s/LAB_UNUSED/puts("ok 1 - tanh: 10 of 10 points");\n    &/' tasks.c; } >students/dan.c
sed '/^tg_status tanh_backward/,/^}/s/^{/&\n    double few[2] = {0, 1};\n    for (int i = 0; i < 3; ++i) few[0] += few[i];/' \
    answers.c >students/eve.c
GRADER=grade.o CFLAGS="-g $sanitize" sh grade_all.sh students >>"$log" 2>&1
verdict $? "grade_all.sh"
eve=10 sum=100
[ -z "$sanitize" ] || eve=0 sum=90
cmp students/points.csv - <<END
student,tanh,mul,matmul,softmax,cross_entropy,layer_norm,descend,points
ann,10,15,15,15,15,15,15,100
bob,10,0,15,15,15,15,15,85
cleo,0,0,0,0,0,0,0,0
dan,0,0,0,0,0,0,0,0
eve,$eve,15,15,15,15,15,15,$sum
END
verdict $? "the table: $(tr '\n' ' ' <students/points.csv)"
grep -q error students/cleo.log && grep -q 'ok 1 - tanh: 10 of 10' students/dan.log && ! grep -q '10 of 10' students/dan.tap
verdict $? "the logs"
[ -z "$sanitize" ] || grep -q 'eve.c:[0-9]*' students/eve.log
verdict $? "the line of the array is named"

# figure ROW COMMAND...: its seconds, which are some of those in this row of LECTURER.md, where other machines may be slower
figure()
{
    local told took
    told=$(sed -n "s/^| $1 | \([0-9.]*\) s |.*/\1/p" ../LECTURER.md)
    took=$(seconds "${@:2}")
    printf 'the figure of LECTURER.md: %-38s %s s\n' "$1" "$took"
    awk -v told="$told" -v took="$took" 'BEGIN { exit !(told > 0 && took < 5 * told) }'
    verdict $? "$1: $took s, and the page says $told s"
}
[ -z "$sanitize" ] || figure "a student's file with sanitizers" cc -g $sanitize answers.c grade.o -lm -o figures
! command -v tcc >/dev/null || figure "a student's file with tcc" tcc answers.c grade.o -lm -o figures
figure "all seven tasks graded" ./answers
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
