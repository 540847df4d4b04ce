#!/bin/sh
# op_numbers.sh: copies lines, with the names of ops as the numbers that kernels have in an object file and in reports:
# tgi_formula<add, float> becomes tgi_formula<64, float>, and tgi_gradient<gelu, float> likewise.  The numbers are those
# of the enum that the preprocessor makes of the op table, so that a new row needs no change here.  A name that is no op
# is an error.  Run in the root of the repository.
table=$(${CC:-cc} -E -P -DTENSORGRAD_IMPLEMENTATION -x c tensorgrad.h | grep -o 'TGI_OP_[a-z_0-9]*,' |
    awk '!seen[$0]++ { gsub(/TGI_OP_|,/, ""); printf "%s ", $0 }')
awk -v table="$table" '
    BEGIN { split(table, name, " "); for (i in name) number[name[i]] = i - 1; if (!("add" in number)) bad = 1 }
    {
        out = ""
        while (match($0, /tgi_(formula|gradient)<[a-z_0-9]+,/)) {
            split(substr($0, RSTART, RLENGTH), part, /[<,]/)
            if (!(part[2] in number)) { print "no op: " part[2] | "cat >&2"; bad = 1 }
            out = out substr($0, 1, RSTART - 1) part[1] "<" number[part[2]] ","
            $0 = substr($0, RSTART + RLENGTH)
        }
        print out $0
    }
    END { exit bad }'
