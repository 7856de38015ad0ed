// Serial issues business serial numbers, such as IS202110240001, on the command line.
//
//	serial next [-n N | -once ID] TYPE       issue the next number, the next N, or a request's number
//	serial peek TYPE                         print the last number issued in this period, if any
//	serial history [-n PERIODS] TYPE         print how many numbers each of the last periods issued
//	serial prepare TYPE                      open this period and the next one; print the next number
//	serial raise TYPE SEQ                    make the next number at least SEQ+1, and print it
//	serial takeover TYPE SEQ                 give the series to this time zone; print the next number
//	serial audit [-date DATE] TYPE [FILE]    list numbers that are missing, used twice or never issued
//	serial import [-dry-run] [TYPE] [FILE]   raise counters to the numbers of another system
//	serial parse NUMBER                      print a number's type, sequence and start of the period
//	serial template TEMPLATE                 explain a template by examples, or say why it is refused
//	serial completion SHELL                  print the completion script of bash, zsh or fish
//	serial version                           print the version of this program
//
// "serial help next" lists the flags of next. Flags may come before or after the command and its arguments, as in
//
//	serial next IS -redis redis://localhost:6379/0 -tz Asia/Shanghai
//
// and -- ends them. $SERIAL_REDIS_URL and $SERIAL_TZ are the defaults of -redis and -tz; empty variables count as not
// set. Keep a URL with a password in $SERIAL_REDIS_URL, since other users of the host can read command lines. An empty
// value on the command line is refused, because it usually comes from an unset shell variable. Whole numbers are
// decimal.
//
// All processes that issue numbers of a type must agree on -tz, -period, -day-start, -year-start, -template, -shared,
// -hidden-key and -prefix, whether they run this command or another program. So with a Redis URL, the time zone is
// required: this machine's may differ from that of other processes. Without a URL, only next, parse, template,
// completion, version and help work, and next counts in memory, for this run only.
//
// The key of a hidden sequence is secret. It is read as hexadecimal digits from $SERIAL_HIDDEN_KEY or from the file
// that -hidden-key names, never from the command line.
//
// If the template prints a more exact date than the period, such as the day of a number that is counted by month, Redis
// does not store the printed date. Then peek, raise, takeover and prepare print the sequence, and the number with
// today's date.
//
// Parse and template never use Redis, and they ignore $SERIAL_REDIS_URL. They need the time zone only to say when
// periods begin, so unless -redis is given, it defaults to this machine's zone.
//
// Audit and import read numbers from a file or stdin, one per line, or with -column from a column of CSV whose first
// line names the columns, separated by commas, semicolons or tabs. They read UTF-8, and UTF-16 with a byte order mark.
// They skip blank lines, and blanks and ="…" around numbers, and accept Windows line endings. A field of CSV has at most
// 1 MB.
//
// Audit reads the counter of the current period, or of the period of -date if its counter is still kept. It lists the
// numbers that are missing, appear twice or were never issued, and the lines that are not numbers. If it finds any, the
// exit code is 3. With -explained, it reads from a CSV file why numbers are missing, prints the reasons, and counts
// only unexplained numbers as missing. With -earlier, once for each template, it also counts numbers that were printed
// before the template was changed.
//
// Import raises the counter of every type's current period to the greatest number found. It lists what it did, which
// sequences between the smallest and the greatest are missing from the input, and which numbers of other periods it
// ignored. If a line is not a number, it lists only such lines and writes nothing. An input without numbers is an
// error. It needs -force if a sequence appears twice, or if a type's greatest sequence exceeds the second greatest by
// more than 1,000 and by more than the input's sequences of that type. With -dry-run, the default if stdin is a
// terminal, import only says what it would do.
//
// If raise or takeover skip sequences, they end with lines of CSV that list them: a file for audit -explained. With
// -reason and -by, it explains why nobody has these numbers. Without these flags, the reason is only possible, and
// explains nothing.
//
// If a service sets a type's numbers aside in a ledger, only programs with that ledger can raise them, and issue and
// prepare them until the period ends: use the service's own command, made with package serialcmd. Takeover needs
// -leave-ledger. That gives up the
// ledger: if Redis loses data after that, numbers may be issued twice.
//
// For bash, "source <(serial completion bash)" completes commands and flags; for fish, "serial completion fish | source".
//
// Results go to stdout, with -json as one JSON object per line. Everything else goes to stderr, and the last line of an
// error is its reason. The exit code is 0 for success, 1 for a failure, 2 for an invalid command line, for which
// nothing was sent to Redis, and 3 for an audit that found something. Numbers that were printed before a failure stay
// issued. If numbers were issued but could not be printed, the error names them. If stdout is closed, next issues
// nothing.
package main

import (
	"os"
	_ "time/tzdata" // -tz works on a host without a zone database, too

	"github.com/dailyserial/serial/serialcmd"
)

func main() { os.Exit(serialcmd.Main(nil, new(settings))) }
