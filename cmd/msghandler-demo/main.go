// Command msghandler-demo tells the whole story on one terminal. It starts the msghandler beside it as the coordinator.
package main

import (
	"context"
	"os"

	"github.com/msghandler/msghandler/dev/story"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

func main() { os.Exit(story.Run(context.Background(), commandline.System())) }
