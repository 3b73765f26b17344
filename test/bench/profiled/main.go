// Command profiled is msghandler with the profiles of Go's runtime served at PPROF_ADDR, for benchmarks. The shipped
// binary serves none, because profiles tell strangers too much.
package main

import (
	"context"
	"log/slog"
	"net/http"
	_ "net/http/pprof" // serves the profiles
	"os"
	"runtime"
	"time"

	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// One in so many waits for a mutex is sampled, and one other wait for each so much waiting: often enough to show the
// costs in seconds of full load, and rarely enough to be no cost.
const (
	mutexes = 20
	blocked = 100 * time.Microsecond
)

func main() {
	runtime.SetMutexProfileFraction(mutexes)
	runtime.SetBlockProfileRate(int(blocked))
	if addr := os.Getenv("PPROF_ADDR"); addr != "" {
		go func() {
			server := &http.Server{Addr: addr, ReadHeaderTimeout: time.Second}
			slog.Error("the profiles are not served", "error", server.ListenAndServe())
		}()
	}
	os.Exit(cli.Run(context.Background(), commandline.System()))
}
