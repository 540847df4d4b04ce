#!/usr/bin/env bash
# bigram.sh PROGRAM FILE: with makemore's names.txt, 07_bigram counts the loss that makemore's lecture counts, 2.4546 nats;
# gradient descent comes as near as 0.001, and makes up the same names.
"$1" "$2" | awk '{ print } $1 == "counting" { counted = $2 } $1 == "step" { learned = $3 }
    names { other += $1 != $2; all++ } $2 == "learned" { names = 1 }
    END { exit !(counted == 2.4546 && learned - counted < 0.001 && learned >= counted && all == 8 && other == 0) }'
