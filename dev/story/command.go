package story

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/msghandler/msghandler/examples/database"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// Command is the command line of the demo.
type Command struct {
	Orders   int    `help:"How many buyers there are." default:"300"`
	Database string `help:"An empty database for the shop: postgres://USER:PASSWORD@HOST/NAME or mariadb://USER:PASSWORD@HOST/NAME. Default: a file of SQLite." placeholder:"URL"`
}

// Run plays the whole story on a terminal.
func (c *Command) Run(ctx context.Context, s *commandline.Session) error {
	if c.Orders < 100 {
		return commandline.UsageError{Err: fmt.Errorf("--orders is %d; the story needs at least 100", c.Orders)}
	}
	if err := c.checkDatabase(ctx); err != nil {
		return err
	}
	executable, err := commandline.FindProgram("msghandler")
	if err != nil {
		return fmt.Errorf("%w; the demo starts it as its coordinator", err)
	}
	logger := slog.New(slog.NewTextHandler(s.Err, nil))
	return commandline.UntilSignalled(ctx, logger, commandline.AlwaysStop, func(ctx context.Context) error {
		return run(ctx, config{
			Orders: c.Orders, Database: c.Database, Executable: executable, Out: s.Out,
		})
	})
}

// checkDatabase refuses a database that cannot be reached, before anything starts.
func (c *Command) checkDatabase(ctx context.Context) error {
	if c.Database == "" {
		return nil
	}
	db, err := database.Open(ctx, c.Database)
	switch {
	case errors.Is(err, database.ErrURL):
		return commandline.UsageError{Err: fmt.Errorf("--database: %w", err)}
	case err != nil:
		return fmt.Errorf("--database: %w", err)
	}
	return db.Close()
}
