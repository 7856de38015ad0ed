package serialcmd_test

import (
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialcmd"
)

// A service's own command ends with os.Exit(serialcmd.Main(gen)), where gen has the settings of the service's
// generator.
func ExampleMain() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:5}"))
	if err != nil {
		fmt.Println(err)
		return
	}
	os.Args = []string{"orders-serial", "parse", "IS-20211024-00001"} // as typed in a shell
	code := serialcmd.Main(gen)
	fmt.Println("exit code", code)
	// Output:
	// type IS
	// start 2021-10-24T00:00:00Z
	// seq 1
	// exit code 0
}
