package cli

import (
	"context"
	"maps"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/build"
)

type serveCommand struct {
	Set map[string]string `help:"Set any key, those of single producers too: --set producers.orders.target=orders:9000" mapsep:"none" placeholder:"KEY=VALUE"`

	kong.Plugins
	flags *commandline.ConfigFlags
}

func newServeCommand() serveCommand {
	flags := commandline.NewConfigFlags(nil)
	return serveCommand{flags: flags, Plugins: flags.Plugins()}
}

// Run serves until the context ends, SIGTERM or SIGINT comes, its terminal closes, or a part fails.
func (c *serveCommand) Run(ctx context.Context, s *commandline.Session) error {
	flags := c.flags.Given()
	maps.Copy(flags, c.Set)
	current, err := config.Open(s.Sources(flags))
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	logger := commandline.NewLogger(s.Err, current.Config.Log)
	defer relaxCollector()()
	hangups := make(chan struct{}, 1)
	hangup := commandline.TerminalClosed(func() {
		select {
		case hangups <- struct{}{}:
		default: // the configuration is about to be read again anyway
		}
	})
	return commandline.UntilSignalled(ctx, logger, hangup, func(ctx context.Context) error {
		coordinator, err := app.New(ctx, current.Config, app.Deps{
			Version: build.Read().Version, Logger: logger, Configuration: current, Reload: hangups,
		})
		if err != nil {
			return err
		}
		return coordinator.Run(ctx)
	})
}
