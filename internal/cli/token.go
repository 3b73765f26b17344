package cli

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/operate"
)

// tokenCommand changes the file of tokens that coordinators read.
type tokenCommand struct {
	New    tokenNewCommand    `cmd:"" help:"Make a token, and print it on standard output. The file keeps a hash only."`
	List   tokenListCommand   `cmd:"" help:"List the tokens of the file, without the tokens themselves."`
	Revoke tokenRevokeCommand `cmd:"" help:"Remove a token from the file. Coordinators refuse the token from then on."`
}

// tokenFileFlags name the file of tokens.
type tokenFileFlags struct {
	File string `help:"The file of tokens (default: access.token_file of the configuration)." placeholder:"FILE" type:"path"`
}

func (f *tokenFileFlags) path(s *commandline.Session) (string, error) {
	if f.File != "" {
		return f.File, nil
	}
	c, err := s.Load(nil)
	if err != nil {
		return "", commandline.UsageError{Err: err}
	}
	if c.Access.TokenFile == "" {
		return "", commandline.UsageError{Err: errors.New("--file is missing, and the configuration has no " +
			"access.token_file; name the file")}
	}
	return c.Access.TokenFile, nil
}

type tokenNewCommand struct {
	tokenFileFlags
	Name      string   `arg:"" help:"The name of the token, for lists, logs and rules: ci is token:ci in rules."`
	Role      string   `default:"none" enum:"none,viewer,reader,operator,admin" help:"What the caller may do as an operator: none, viewer, reader, operator or admin." placeholder:"ROLE"`
	Producers []string `name:"producer" help:"A producer that the caller may call as, or a glob such as stock-*. Can be given several times." placeholder:"GLOB" sep:"none"`
	Expires   lifetime `help:"How long the token is valid, such as 90d or 12h (default: without end)." placeholder:"TIME"`
}

// Help returns the text below the usage in --help.
func (c *tokenNewCommand) Help() string {
	return `The token is printed once and cannot be shown again. Standard output has the token alone, so a pipe can take
it. A new file has mode 0600; an existing file keeps its mode and its owner. Coordinators read a changed file within
a second.`
}

// Run makes a token.
func (c *tokenNewCommand) Run(s *commandline.Session) error {
	if err := c.check(); err != nil {
		return commandline.UsageError{Err: err}
	}
	path, err := c.path(s)
	if err != nil {
		return err
	}
	secret, made := tokenfile.NewSecret(), c.token(time.Now())
	made.Sum = sha256.Sum256([]byte(secret))
	_, missing := os.Stat(path)
	if err := tokenfile.Add(path, made); err != nil {
		return err
	}
	if missing != nil {
		s.Note("%s is new, with mode 0600; the user of the coordinator must be able to read the file", path)
	}
	s.Note("token %s is in %s: role %s, producers %s, %s; keep the token, it is not shown again",
		made.Name, path, made.Role, producersOf(made), expiryOf(made))
	if _, err := fmt.Fprintln(s.Out, secret); err != nil {
		return fmt.Errorf("write the token: %w; revoke the token %s, and make another", err, made.Name)
	}
	return nil
}

func (c *tokenNewCommand) check() error {
	if err := tokenfile.CheckName(c.Name); err != nil {
		return err
	}
	for _, glob := range c.Producers {
		if err := access.CheckProducerGlob(glob); err != nil {
			return fmt.Errorf("--producer=%s: %w", glob, err)
		}
	}
	return nil
}

// token is the token without its hash.
func (c *tokenNewCommand) token(now time.Time) tokenfile.Token {
	role, _ := access.ParseRole(c.Role) // the parser of the command line has checked the role
	made := tokenfile.Token{Name: c.Name, Created: now.UTC(), Role: role, Producers: c.Producers}
	if c.Expires > 0 {
		made.Expires = made.Created.Add(time.Duration(c.Expires))
	}
	return made
}

// lifetime is a duration that may be written in days.
type lifetime time.Duration

// longestLifetime is ten years: a longer time is a mistake, or means a token without end.
const longestLifetime = 3650 * 24 * time.Hour

// UnmarshalText reads 90d or 12h.
func (l *lifetime) UnmarshalText(text []byte) error {
	age, err := operate.ParseAge(string(text))
	d := age.AsDuration()
	if err != nil || d < time.Second || d > longestLifetime {
		return errors.New("write a time from 1s to 3650d, such as 90d or 12h")
	}
	*l = lifetime(d)
	return nil
}

type tokenListCommand struct {
	tokenFileFlags
	Output string `short:"o" default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
}

// listedToken is a token of token list in --output json.
type listedToken struct {
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Producers []string   `json:"producers,omitempty"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Expired   bool       `json:"expired"`
	// Fingerprint is the beginning of the hash.
	Fingerprint string `json:"fingerprint"`
}

// Run lists the tokens.
func (c *tokenListCommand) Run(s *commandline.Session) error {
	path, err := c.path(s)
	if err != nil {
		return err
	}
	tokens, err := tokenfile.Read(path)
	if err != nil {
		return err
	}
	now := time.Now()
	listed := make([]listedToken, len(tokens))
	for i, t := range tokens {
		listed[i] = listedToken{
			Name: t.Name, Role: t.Role.String(), Producers: t.Producers, CreatedAt: setTime(t.Created),
			ExpiresAt: setTime(t.Expires), Expired: t.Expired(now), Fingerprint: t.Fingerprint(),
		}
	}
	return s.PrintDocument(c.Output, map[string]any{"tokens": listed}, func() [][]string {
		rows := [][]string{{"NAME", "ROLE", "PRODUCERS", "CREATED", "EXPIRES"}}
		for _, t := range tokens {
			rows = append(rows, []string{t.Name, t.Role.String(), producersOf(t), age(t.Created, now), expiryIn(t, now)})
		}
		return rows
	})
}

func setTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func producersOf(t tokenfile.Token) string { return cmp.Or(strings.Join(t.Producers, ","), "-") }

func expiryOf(t tokenfile.Token) string {
	if t.Expires.IsZero() {
		return "without end"
	}
	return "until " + t.Expires.Format(time.RFC3339)
}

func expiryIn(t tokenfile.Token, now time.Time) string {
	switch {
	case t.Expires.IsZero():
		return "never"
	case t.Expired(now):
		return "expired " + age(t.Expires, now)
	}
	return age(t.Expires, now)
}

type tokenRevokeCommand struct {
	tokenFileFlags
	Name string `arg:"" help:"The name of the token, as token list shows it."`
}

// Run revokes a token.
func (c *tokenRevokeCommand) Run(s *commandline.Session) error {
	path, err := c.path(s)
	if err != nil {
		return err
	}
	switch err := tokenfile.Remove(path, c.Name); {
	case errors.Is(err, tokenfile.ErrNoToken):
		return commandline.NotFoundError{Err: err}
	case err != nil:
		return err
	}
	_, err = fmt.Fprintf(s.Out, "token %s is revoked; coordinators that read %s refuse it within a second\n", c.Name, path)
	return err
}
