package serialpage

import (
	"slices"
	"strings"

	"github.com/dailyserial/serial"
)

// A wording says to people what a reason of package serial means.
type wording struct{ constant, Words, Help string }

var wordings = []wording{
	{serial.CallerLeft, "request given up",
		"The program stopped waiting before the number arrived, so nobody received it."},
	{serial.NotReplicated, "not confirmed in time",
		"No second server confirmed the number in time, so the program did not use it."},
	{serial.BlockBurned, "set aside and never used",
		"The program had set the number aside in advance, and it can no longer be issued."},
	{serial.AnswerLost, "request without an answer",
		"A request for numbers got no answer, so nobody knows whether it used any of these."},
	{serial.Raised, "counter moved ahead",
		"Somebody moved the counter past these numbers: nobody has one, unless data was lost before that."},
	{serial.BlockSkipped, "numbers passed over",
		"The counter continued with a later block: nobody has one of these, unless data was lost before that."},
}

// worded returns an explanation's reason for people, without its details, which nobody needs who reads a page. If it is
// a person's or unknown, it is unchanged and has no help.
func worded(e *serial.Explanation) wording {
	if e.By == "" {
		for _, w := range wordings {
			if rest, ok := strings.CutPrefix(e.Reason, w.constant); ok && (rest == "" || rest[0] == ':' || rest[0] == ';') {
				return w
			}
		}
	}
	return wording{Words: e.Reason}
}

// addHelp adds the wordings of lines that have help and are not in a list yet.
func addHelp(list []wording, lines ...explainedLine) []wording {
	for _, l := range lines {
		w := wording{Words: l.Reason, Help: l.Help}
		if l.Help != "" && !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	return list
}
