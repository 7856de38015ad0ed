package gapless

var sqlite = statements{
	create: [2]string{`CREATE TABLE IF NOT EXISTS {this} (
	series   BLOB    NOT NULL,
	period   BLOB    NOT NULL,
	mark     BLOB    NOT NULL,
	previous INTEGER NOT NULL,
	last     INTEGER NOT NULL,
	closed   INTEGER,[
	dated        INTEGER,
	dated_before INTEGER,]
	PRIMARY KEY (series, period)
) WITHOUT ROWID`, `CREATE TABLE IF NOT EXISTS {this} (
	series   BLOB NOT NULL,
	calendar BLOB NOT NULL,
	closed   INTEGER,
	PRIMARY KEY (series)
) WITHOUT ROWID`},
	quote:  `"`,
	now:    "julianday('now')", // short, because drivers parse a statement each time they run it
	update: update,
	upsert: upsert{read: `INSERT INTO {table} AS c (series, period, mark, previous, last[, dated])
			VALUES ({series}, {period}, {mark}, 0, {first}[, {dated}])
			ON CONFLICT (series, period) DO UPDATE
			SET mark = CASE c.last WHEN 0 THEN {mark} ELSE c.mark END, previous = c.last,[
				dated_before = c.dated, dated = {dated},]
				last = max(c.last + {n}, CASE c.last WHEN 0 THEN {first} ELSE {minimum} END)
			RETURNING last, previous, mark, closed[, dated_before], {now}`},
	lockSeriesRow: upsert{read: `INSERT INTO {series_table} AS g (series, calendar) VALUES ({series}, {calendar})
			ON CONFLICT (series) DO UPDATE SET calendar = g.calendar RETURNING calendar, closed, {now}`},
	setClosed: setClosed,
}
