// Command profiled is msghandler with the profiles of Go's runtime served at PPROF_ADDR, for benchmarks. The shipped binary
// serves none: they would tell whoever reaches it too much.
package main

import (
	"context"
	"log/slog"
	"net/http"
	_ "net/http/pprof" // serves the profiles
	"os"
	"time"

	"github.com/msghandler/msghandler/internal/cli"
)

func main() {
	if addr := os.Getenv("PPROF_ADDR"); addr != "" {
		go func() {
			server := &http.Server{Addr: addr, ReadHeaderTimeout: time.Second}
			slog.Error("the profiles are not served", "error", server.ListenAndServe())
		}()
	}
	os.Exit(cli.Run(context.Background(), cli.Process{
		Args: os.Args[1:], Env: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
	}))
}
