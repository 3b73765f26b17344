package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/msghandler/msghandler/internal/cli/demo"
	"github.com/msghandler/msghandler/internal/demo/database"
)

type demoCommand struct {
	Orders   int    `help:"How many orders are placed." default:"500"`
	Database string `help:"An empty database for both services: postgres://USER:PASSWORD@HOST/NAME or mariadb://USER:PASSWORD@HOST/NAME. Default: a file of SQLite for each." placeholder:"URL"`
}

// Run tells the whole story on one terminal.
func (c *demoCommand) Run(ctx context.Context, s *session) error {
	if c.Orders < 100 {
		return usageError{fmt.Errorf("--orders is %d; the story needs at least 100", c.Orders)}
	}
	if err := c.checkDatabase(); err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	return untilSignalled(ctx, slog.New(slog.NewTextHandler(s.Err, nil)), alwaysStop, func(ctx context.Context) error {
		return demo.Run(ctx, demo.Config{
			Orders: c.Orders, Database: c.Database, Executable: executable, Out: s.Out, Live: isTerminal(s.Out),
		})
	})
}

// checkDatabase refuses a name that is none. It connects to nothing.
func (c *demoCommand) checkDatabase() error {
	if c.Database == "" {
		return nil
	}
	db, err := database.Open(c.Database)
	if err != nil {
		return usageError{fmt.Errorf("--database: %w", err)}
	}
	return db.Close()
}
