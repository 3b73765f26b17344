package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/app/doctor"
)

type verifyProducerCommand struct {
	Name      string        `arg:"" help:"The producer's name, such as orders." name:"PRODUCER"`
	Target    string        `arg:"" optional:"" help:"Where it is called back; default: producers.PRODUCER.target." name:"HOST:PORT"`
	Committed []string      `help:"An id that has committed and whose marker is not deleted yet; the producer must say so." placeholder:"ID"`
	Timeout   time.Duration `default:"1m" help:"How long the whole may take."`
	Output    string        `default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`

	kong.Plugins
	flags *configFlags
}

func newVerifyProducerCommand() verifyProducerCommand {
	flags := newConfigFlags()
	return verifyProducerCommand{flags: flags, Plugins: kong.Plugins{flags.fields.Interface()}}
}

// Help says what --help says below the usage.
func (c *verifyProducerCommand) Help() string {
	return `For a producer that is new or under suspicion. Its target must be allowed by callbacks.allow, as for a coordinator; without a
configuration that is not examined. It is asked about ids that cannot exist: many at once, the longest, the same one twice, none at all, and in a final question, which
leaves a tombstone there; and it is told to delete markers that are not there. The exit status is 1 when it breaks the
contract, and 0 otherwise: warnings are no failure.`
}

// Run asks the producer, and fails when it breaks the contract.
func (c *verifyProducerCommand) Run(ctx context.Context, s *session) error {
	if err := positive("timeout", c.Timeout); err != nil {
		return err
	}
	flags := c.flags.given()
	settings, err := s.load(flags)
	if err != nil {
		return usageError{err}
	}
	if c.Target == "" && settings.Producers[c.Name].Target == "" {
		return usageError{fmt.Errorf("where is %s? Write: msghandler verify-producer %s HOST:PORT", c.Name, c.Name)}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	stop := s.progress().during("asking " + c.Name)
	found := doctor.Verify(ctx, doctor.Examination{
		Settings: settings, Defaults: s.sources(flags).Defaults(doctor.Sections()...),
	}, c.Name, c.Target, c.Committed...)
	stop()
	return s.printFindings(found, c.Output)
}
