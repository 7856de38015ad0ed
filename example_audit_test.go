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
