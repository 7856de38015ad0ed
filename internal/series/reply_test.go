package series

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDigest(t *testing.T) {
	now := time.Unix(5, 7000)
	found := Found{"2021 1 2", "ab", -1, 3, true, true, true, true, true, true}
	for text, want := range map[string]Reply{
		`{"status":"part","last":"9","count":2,"seconds":5,"micros":7}`: {Status: Issued, Last: 9, Count: 2},
		`{"status":"raised","last":"9","count":2,"from":"-1","upto":"7","seconds":5,"micros":7}`: {Status: Issued, Last: 9,
			Count: 2, Opened: true, From: -1, Upto: 7},
		`{"status":"there","last":"999999999999999","count":1,"seconds":5,"micros":7}`: {Status: Issued,
			Last: MaxSeq, Count: 1},
		`{"status":"clock","seconds":5,"micros":7}`: {Status: clocked},
		`{"status":"missing","text":"9","entered":"2021 1 2","id":"ab","ceiling":"-1","above":"3","last":"9","exists":true,
			"starts":true,"lost":true,"mixed":true,"intact":true,"closed":true,"seconds":5,"micros":7}`: {Status: missing,
			Detail: "9", Last: 9, Found: found},
	} {
		r, err := digest(text, 3)
		require.NoError(t, err)
		want.Now, want.Seconds, want.Micros = now, 5, 7
		require.Equal(t, want, r, text)
	}
	r, err := digest(int64(4), 3)
	require.NoError(t, err)
	require.Equal(t, Reply{Status: Issued, Last: 4, Count: 3, Opened: true}, r)
	r, err = digest([]any{int64(1), int64(-1)}, 0)
	require.NoError(t, err)
	require.Equal(t, Reply{Status: Issued, Counters: []int64{1, -1}}, r)
	refusal := Refusal{Reply: Reply{Detail: "2021 1 2 years 0.6 #aa"}}
	require.Equal(t, "years", refusal.EnteredPeriod().Calendar)
	for _, value := range []any{nil, "", "OK", "{}", "5", `{"status":""}`, `{"status":5}`, `{"status":"part","last":"x"}`,
		[]any{}, []any{int64(1)}, []any{int64(1), "2"}, 1.5, true} {
		_, err := digest(value, 1)
		require.ErrorContains(t, err, "unexpected script reply", "%v", value)
	}
}
