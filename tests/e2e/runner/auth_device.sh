# Reports by itself: begins, shows a code that a person must type, and ends as it is told to.
if [ "$2" = silent ]; then exit 0; fi
"$3" runner report started || exit 9
"$3" runner report output "code ABCD-1234"
while [ ! -e "$1" ]; do sleep 0.05; done
case "$2" in
    good) "$3" runner report completed ;;
    bad) "$3" runner report failed "access denied" --exit-code 4 ;;
    twice) "$3" runner report completed && ! "$3" runner report failed "too late" ;;
esac
