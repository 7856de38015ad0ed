package serial

import "time"

// A Report is the account of a type's numbers in one period: it compares the numbers that were issued with those that
// were used. [Report.Clean] reports whether they agree. The lists hold the first 1,000 entries; the counts are exact.
// Count + MissingCount is Last - First + 1, or 0 if that is negative.
type Report struct {
	Type  string
	Start time.Time // first instant of the period
	First int64     // first sequence of a period, see [WithStart]
	Last  int64     // last sequence issued before the used numbers were read; 0 if none was

	Count      int64    // different sequences of this type and period among the used numbers, from First to Last
	Missing    []Range  // sequences from First to Last that are not among the used numbers, in ascending order
	Duplicates []Number // second occurrence of each sequence that was used more than once, whatever its text
	Beyond     []Number // each occurrence of a sequence above Last or below First
	Foreign    []string // texts that are not numbers of this scheme, cut at 256 bytes

	MissingCount   int64 // sequences
	DuplicateCount int64 // sequences
	BeyondCount    int64 // occurrences
	ForeignCount   int64 // occurrences
	OtherCount     int64 // numbers of other types or periods, which are not accounted for

	Explained    []Explained   // missing sequences that are explained, in ascending order; see [WithExplanations]
	Unexplained  []Range       // other missing sequences, in ascending order
	Possible     []Explanation // possible reasons that touch unexplained sequences, ordered by At, then as they were read
	Contradicted []Number      // used sequences that nobody got by an explanation, each once, in ascending order

	ExplainedCount    int64 // sequences
	UnexplainedCount  int64 // sequences; with ExplainedCount they are MissingCount
	PossibleCount     int64 // explanations
	ContradictedCount int64 // sequences
}

// Explained is a range of missing sequences, and the explanation that accounts for all of them. Neighbours that one
// explanation accounts for are one range. The explanation is as it was given, with At in UTC.
type Explained struct {
	Range
	Explanation Explanation
}

// A Range is the sequences from First to Last, both included.
type Range struct{ First, Last int64 }

// Clean reports whether the used numbers are those that were issued, each used once, and everything missing is
// explained, and nothing is contradicted. Possible reasons change nothing.
func (r Report) Clean() bool {
	return r.UnexplainedCount == 0 && r.ContradictedCount == 0 && r.DuplicateCount == 0 && r.BeyondCount == 0 &&
		r.ForeignCount == 0
}
