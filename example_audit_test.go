package serial_test

import (
	"fmt"
	"iter"
	"log"
	"time"

	"github.com/dailyserial/serial"
)

// An account of the numbers that a shop has stored on invoices. In a service they come from a query, and Generator.Audit asks
// Redis for the last one issued.
func ExampleScheme_Audit() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	var stored iter.Seq2[string, error] = func(yield func(string, error) bool) {
		for _, number := range []string{"IS202110240001", "IS202110240004", "IS202110240002", "IS202110240004",
			"IS202110240009", "IS-0003"} {
			if !yield(number, nil) {
				return
			}
		}
	}
	report, err := scheme.Audit("IS", time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC), 7, stored)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Count, "of", report.Last)
	fmt.Println("missing:", report.Missing)
	fmt.Println("double:", report.Duplicates)
	fmt.Println("never issued:", report.Beyond)
	fmt.Println("no numbers:", report.Foreign)
	// Output:
	// 3 of 7
	// missing: [{3 3} {5 7}]
	// double: [IS202110240004]
	// never issued: [IS202110240009]
	// no numbers: [IS-0003]
}

// What is missing, double, never issued or no number has to be explained.
func ExampleReport_Clean() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	stored := func(yield func(string, error) bool) {
		_ = yield("IS202110240002", nil) && yield("IS202110240001", nil)
	}
	for _, last := range []int64{2, 3} {
		report, err := scheme.Audit("IS", time.Date(2021, time.October, 24, 0, 0, 0, 0, time.UTC), last, stored)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(report.Clean(), report.Missing)
	}
	// Output:
	// true []
	// false [{3 3}]
}

// A clerk has voided the third invoice, and a process lost an answer, which may have had one of the others. That is possible, so it
// explains nothing.
func ExampleWithExplanations() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	day := time.Date(2021, time.October, 24, 0, 0, 0, 0, time.UTC)
	stored := func(yield func(string, error) bool) {
		_ = yield("IS202110240001", nil) && yield("IS202110240004", nil)
	}
	// In a service they come from a table.
	reasons := func(yield func(serial.Explanation, error) bool) {
		e := serial.Explanation{Series: "serial:IS", Type: "IS", Start: day, First: 2, Last: 9999, Possible: true,
			Reason: serial.AnswerLost + ": 1 attempt", At: day.Add(9 * time.Hour)}
		if !yield(e, nil) {
			return
		}
		e.First, e.Last, e.Possible, e.Reason, e.By = 3, 3, false, "voided by Ada", "Ada"
		yield(e, nil)
	}
	report, err := scheme.Audit("IS", day, 5, stored, serial.WithExplanations(reasons))
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range report.Explained {
		fmt.Println(e.Range, e.Explanation.Reason)
	}
	fmt.Println("not explained:", report.Unexplained)
	for _, e := range report.Possible {
		fmt.Println("possible:", e.Reason)
	}
	// Output:
	// {3 3} voided by Ada
	// not explained: [{2 2} {5 5}]
	// possible: answer lost: 1 attempt
}

// Numbers are issued while the audit reads: a counter that is not a Generator's is read again when it has.
func ExampleWithLastAfter() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	last := int64(2)
	stored := func(yield func(string, error) bool) {
		last = 4
		_ = yield("IS202110240001", nil) && yield("IS202110240002", nil) && yield("IS202110240004", nil)
	}
	report, err := scheme.Audit("IS", time.Date(2021, time.October, 24, 0, 0, 0, 0, time.UTC), last, stored,
		serial.WithLastAfter(func() (int64, error) { return last, nil }))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Last, report.Missing, report.Clean())
	// Output:
	// 2 [] true
}
