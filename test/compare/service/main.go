// Command service is the service of the comparison, with one of the compared systems. test/compare starts it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/msghandler/msghandler/test/compare/load"
)

func main() {
	var config load.Config
	err := json.Unmarshal([]byte(os.Args[1]), &config)
	if err == nil {
		err = load.Run(context.Background(), config, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
