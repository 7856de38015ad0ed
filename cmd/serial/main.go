// Serial issues business serial numbers, such as IS202110240001, on the command line.
//
//	serial next [-n N | -once ID] TYPE       issue the next number, the next N, or a request's number
//	serial peek TYPE                         print the last number issued in this period, if any
//	serial history [-n PERIODS] TYPE         print how many numbers were issued in each recent period
//	serial prepare TYPE                      open this period and the next one; print the next number
//	serial raise TYPE SEQ                    make the next number at least SEQ+1, and print it
//	serial takeover TYPE SEQ                 give the series to this time zone; print the next number
//	serial audit [-date DATE] TYPE [FILE]    list numbers that are missing, used twice or never issued
//	serial import [-dry-run] [TYPE] [FILE]   raise counters to the numbers of another system
//	serial parse NUMBER                      print a number's type, sequence and start of the period
//	serial template TEMPLATE                 explain a template by examples, or print why it is invalid
//	serial completion SHELL                  print the completion script of bash, zsh or fish
//	serial version                           print the version of this program
//
// "serial help next" lists the flags of next. Flags may come before or after the command and its arguments, as in
//
//	serial next IS -redis redis://localhost:6379/0 -tz Asia/Shanghai
//
// The word -- ends the flags. The defaults of -redis and -tz are $SERIAL_REDIS_URL and $SERIAL_TZ, unless these are
// empty. If a URL contains a password, keep it in $SERIAL_REDIS_URL, because other users of the host can read command
// lines. An empty value on the command line is an error, because it usually comes from an unset shell variable.
// Integers are decimal.
//
// All processes that issue numbers of a type must have the same -tz, -period, -day-start, -year-start, -template,
// -shared, -hidden-key and -prefix, whether they run this command or another program. The time zone of this machine may
// differ from that of other processes, so -tz is required with a Redis URL. Without a URL, only next, parse, template,
// completion, version and help work. Next then counts in memory, so every run starts at the first number.
//
// The key of a hidden sequence is secret. It is read as hexadecimal digits from $SERIAL_HIDDEN_KEY or from the file of
// -hidden-key, never from the command line.
//
// A template may print a more exact date than the period, for example the day although the period is a month. Redis
// does not store that date. In this case, peek, raise, takeover and prepare print the sequence, and the number with
// today's date.
//
// Parse and template never use Redis, and ignore $SERIAL_REDIS_URL. They need the time zone only for the start of
// periods. Without -redis, it is therefore not required, and the default is the time zone of this machine.
//
// Audit and import read numbers from a file or stdin, one per line or, with -column, from a column of CSV with a
// header. Columns are separated by commas, semicolons or tabs. The input is UTF-8, or UTF-16 with a byte order mark.
// Lines end with LF or CRLF. Blank lines are skipped. Whitespace and ="…" around a number are ignored. A field of CSV
// may have up to 1 MB.
//
// Audit compares the numbers with the counter of the current period or, with -date, of an earlier period whose counter
// still exists. It lists the numbers that are missing, used twice or never issued, and the lines that are not numbers.
// If there are any, the exit code is 3. With -explained, audit reads the reasons for missing numbers from a CSV file
// and prints them. Explained numbers no longer count as missing. If the template was changed, audit also counts the
// numbers that were printed with the template of -earlier.
//
// Import raises the counter of the current period to the largest number found, for every type. It lists what it did,
// the sequences between the smallest and the largest that are missing from the input, and the ignored numbers of other
// periods. If a line is not a number, import lists all such lines and writes nothing. An input without numbers is an
// error. Import needs -force if a sequence appears twice, or if the largest sequence of a type is above the second
// largest by more than 1,000 and by more than the count of the type's sequences in the input. With -dry-run, it only
// lists what it would do. This is the default if stdin is a terminal.
//
// If raise or takeover skip sequences, their output ends with lines of CSV that list these. A file with the lines can
// be passed to audit -explained. With -reason and -by, the lines explain why the numbers are not used. Without these
// flags, they contain only a possible reason, which explains nothing.
//
// If a service has a ledger for a type, only programs with that ledger can raise the counter and, until the period
// ends, prepare periods and issue numbers. Use the service's own command, which is created with package serialcmd.
// Takeover takes the series out of its ledger only with -leave-ledger. If Redis loses data later, numbers may then be
// issued twice.
//
// In bash, "source <(serial completion bash)" enables completion of commands and flags; in fish, "serial completion
// fish | source".
//
// Results are printed to stdout, with -json as one JSON object per line. All messages go to stderr, and the last line
// of an error is its reason. The exit code is 0 for success, 1 for a failure, 2 for an invalid command line, for which
// nothing was sent to Redis, and 3 for an audit that found something. Numbers that were printed before a failure stay
// issued. If numbers were issued but could not be printed, the error contains them. If stdout is closed, next issues no
// number.
package main

import (
	"os"
	_ "time/tzdata" // time zone database for hosts without one

	"github.com/dailyserial/serial/serialcmd"
)

func main() { os.Exit(serialcmd.Main(nil, &settings{dial: dial})) }
