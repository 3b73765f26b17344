package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

type verifyProducerCommand struct {
	Name      string        `arg:"" help:"The producer's name, such as orders." name:"PRODUCER"`
	Target    string        `arg:"" optional:"" help:"Where it is called back, HOST:PORT for gRPC or a URL for HTTP; default: producers.PRODUCER.target." name:"TARGET"`
	Committed []string      `help:"An id that has committed and whose marker is not deleted yet; the producer must say so." placeholder:"ID"`
	Timeout   time.Duration `default:"1m" help:"How long the whole may take."`
	Output    string        `default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`

	kong.Plugins
	flags *commandline.ConfigFlags
}

func newVerifyProducerCommand() verifyProducerCommand {
	flags := commandline.NewConfigFlags()
	return verifyProducerCommand{flags: flags, Plugins: flags.Plugins()}
}

// Help returns the text below the usage in --help.
func (c *verifyProducerCommand) Help() string {
	return `For a new producer, or a producer that may break the contract. Its target is HOST:PORT for gRPC, or the URL
below which it takes POST /confirm and POST /deleteBusiness. callbacks.allow must allow its target, as for
a coordinator; without a configuration the target is not checked. The producer is asked about ids that cannot exist:
many at once, the longest, the same id twice, and none. A final question leaves a tombstone there. The producer also
gets a request to delete markers that do not exist. The exit status is 1 when the producer breaks the contract, and 0
otherwise: warnings are no failure.`
}

// Run asks the producer, and fails when the producer breaks the contract.
func (c *verifyProducerCommand) Run(ctx context.Context, s *commandline.Session) error {
	if err := commandline.Positive("timeout", c.Timeout); err != nil {
		return err
	}
	flags := c.flags.Given()
	settings, err := s.Load(flags)
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	if c.Target == "" && settings.Producers[c.Name].Target == "" {
		return commandline.UsageError{
			Err: fmt.Errorf("where is %s? Write: msghandler verify-producer %s HOST:PORT, or a URL", c.Name, c.Name),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	stop := s.Progress().During("asking " + c.Name)
	found := doctor.Verify(ctx, doctor.Examination{
		Settings: settings, Defaults: s.Sources(flags).Defaults(doctor.Sections()...),
	}, c.Name, c.Target, c.Committed...)
	stop()
	return printFindings(s, found, c.Output)
}
