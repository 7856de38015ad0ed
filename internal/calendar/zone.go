package calendar

import (
	"math"
	"time"
)

// begin returns the first instant, in Unix seconds, at which a wall clock in loc shows a given time or a later one. The
// parameter wall is the given time in Unix seconds, as if it were UTC.
//
// begin cannot use time.Date. For a midnight that does not exist, time.Date returns 23:00 or 01:00, and for a midnight
// that occurs twice, it may return the second one. Instead, begin visits the segments between two changes of the zone's
// offset, in order. It starts two days before the given time, because no zone differs from UTC by more than a day. The
// result is in the first segment in which the clock reaches that time. If the clocks skipped the time, the result is
// the start of that segment.
func begin(wall int64, loc *time.Location) int64 {
	from := int64(math.MinInt64) // start of the segment; that of the first one is earlier than any result
	for t := wall - 2*daySeconds; ; {
		offset, end := segment(t, loc)
		if reached := max(wall-offset, from); reached < end {
			return reached
		}
		t, from = end, end
	}
}

// latest returns the latest time that a wall clock in loc has shown up to a given instant. Both are in Unix seconds,
// and the time of the clock is treated as if it were UTC. Usually the result is the time that the clock shows at that
// instant. It is later if the clocks were set back less than two days before.
func latest(at int64, loc *time.Location) int64 {
	shown := int64(math.MinInt64)
	for t := at - 2*daySeconds; ; {
		offset, end := segment(t, loc)
		if end > at {
			return max(shown, at+offset)
		}
		shown = max(shown, end-1+offset)
		t = end
	}
}

// forever is the end of an endless segment.
const forever = int64(1) << 60

// segment returns the offset of clocks in loc from UTC at t, in seconds, and an instant after t up to which this offset
// applies. Both instants are in Unix seconds.
func segment(t int64, loc *time.Location) (offset, end int64) {
	at := time.Unix(t, 0).In(loc)
	_, ahead := at.Zone()
	_, until := at.ZoneBounds()
	end = until.Unix()
	switch {
	case until.IsZero():
		end = forever
	case end <= t:
		// For a zone that follows a rule, Go also ends a segment at the end of each year. In leap years, this end is a day
		// too early, so the last day of the year is in no segment. No zone changes its clocks on that day.
		end = t + 60*60
	}
	return int64(ahead), end
}
