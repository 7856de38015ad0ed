//go:build race

package gapless_test

import (
	"database/sql"

	"github.com/mattn/go-sqlite3"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/dailyserial/serial/gapless"
)

// This driver uses the C code of SQLite.
func init() {
	sqliteBusy = "_busy_timeout=60000"
	dialectors[gapless.SQLite] = func(db *sql.DB) gorm.Dialector { return sqlite.Dialector{Conn: db} }
	sql.Register("sqlite", new(sqlite3.SQLiteDriver)) // the driver of the other builds has this name
}
