package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/ground/typedname"
	"github.com/msghandler/msghandler/proto/certs"
)

// Coordinators says who may call Confirm and DeleteBusiness. A caller that meets one of Names, Tokens and TokenFile
// is let in. Every other caller gets UNAUTHENTICATED (by HTTP 401), or PERMISSION_DENIED (403) if its certificate has
// another name, before anything is looked up or written. Coordinators take this answer for an unreachable producer:
// their messages wait and lose no attempt.
//
// The zero value lets no caller in: a stranger who guesses an id could have its transaction rolled back. With
// Config.CallbackTarget, New refuses it.
type Coordinators struct {
	// Names are globs on the typed names in a client's certificate, such as dns:coordinator.shop, dns:*.msghandler.svc or
	// uri:spiffe://shop/msghandler/*; * is any text within one label of a name. Types are dns, uri, email, and cn for
	// the common name, which counts only in a certificate without alternative names. The server must use TLS and verify
	// client certificates (tls.RequireAndVerifyClientCert or tls.VerifyClientCertIfGiven).
	Names []string
	// Tokens are the bearer tokens that coordinators may show, each of 16 to 4,096 printable ASCII characters without
	// spaces. With two tokens, one can be replaced without a gap.
	Tokens []string
	// TokenFile is a file with further tokens, one per line; empty lines and comment lines (#) do not count. The file
	// is read again when the file changes.
	TokenFile string
	// Anyone lets in every caller: for servers that are guarded otherwise, such as by a mesh or an
	// interceptor. Anyone cannot be combined with the other fields.
	Anyone bool
}

// admission decides who may call.
type admission struct {
	names []typedname.Glob
	// tokens and file may both hold tokens; file may be nil.
	tokens certs.TokenSet
	file   *certs.TokenFile
	anyone bool
}

// named says whether some callers are known.
func (c Coordinators) named() bool { return len(c.Names) > 0 || len(c.Tokens) > 0 || c.TokenFile != "" }

// empty says that no caller is let in.
func (c Coordinators) empty() bool { return !c.named() && !c.Anyone }

// open checks the fields and reads the file. Its errors name the field and quote no token.
func (c Coordinators) open(logger *slog.Logger) (*admission, error) {
	a := &admission{anyone: c.Anyone}
	if c.named() && c.Anyone {
		return nil, errors.New(
			"producer.Config: Coordinators.Anyone contradicts Names, Tokens and TokenFile; remove one side")
	}
	var err error
	if a.names, err = parseNames(c.Names); err != nil {
		return nil, err
	}
	if a.tokens, err = certs.NewTokenSet(c.Tokens); err != nil {
		return nil, fmt.Errorf("producer.Config: Coordinators.Tokens: %w", err)
	}
	if c.TokenFile != "" {
		if a.file, err = certs.OpenTokens(c.TokenFile, logger); err != nil {
			return nil, fmt.Errorf("producer.Config: Coordinators.TokenFile: %w", err)
		}
	}
	return a, nil
}

func parseNames(names []string) (globs []typedname.Glob, err error) {
	for _, text := range names {
		if err = typedname.Check(text); err != nil {
			return nil, fmt.Errorf("producer.Config: Coordinators.Names holds %q, which %w", text, err)
		}
		glob, _ := typedname.Parse(text) // checked above
		globs = append(globs, glob)
	}
	return globs, nil
}

// textClosed is said of a producer that is called at a port and lets no caller in.
const textClosed = "producer.Config.Coordinators is empty: every callback is refused, and messages wait; " +
	"set the certificate names or tokens of your coordinators, or Anyone where something else guards this server"

// check returns a gRPC error for a caller that is not let in. The error is for people who run coordinators, and names
// no accepted caller.
func (a *admission) check(ctx context.Context) error {
	if a.anyone {
		return nil
	}
	names := callerNames(ctx)
	if typedname.AnyMatches(a.names, names, "") {
		return nil
	}
	shown := certs.ShownTokens(ctx)
	for _, token := range shown {
		// Both are asked, so that the time taken does not tell which of the two knows a token.
		set, file := a.tokens.Accepts(token), a.file != nil && a.file.Accepts(token)
		if set || file {
			return nil
		}
	}
	return refusal(names, shown)
}

func refusal(names, tokens []string) error {
	const ask = "; producer.Config.Coordinators says who may call"
	switch {
	case len(tokens) > 0:
		return status.Error(codes.Unauthenticated, "the caller's token is not one of a coordinator"+ask)
	case len(names) > 0:
		return status.Errorf(codes.PermissionDenied, "the caller's certificate, of %.200q, is not one of a coordinator%s",
			strings.Join(names, ", "), ask)
	}
	return status.Error(codes.Unauthenticated, "the caller shows neither a token nor a verified client certificate"+ask)
}

func callerNames(ctx context.Context) []string {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	// A connection may outlast its certificate.
	if cert := certs.ClientCertificate(from.AuthInfo); cert != nil && time.Now().Before(cert.NotAfter) {
		return typedname.OfCertificate(cert)
	}
	return nil
}

const textRefused = "a callback was refused: its caller is not a known coordinator; nothing was looked up; " +
	"if it is one of yours, correct its credentials or Config.Coordinators"

// admit refuses callers that are not let in, and logs the refusal without any text of the request.
func (p *Producer) admit(ctx context.Context) error {
	err := p.admission.check(ctx)
	if err == nil {
		return nil
	}
	if skipped, due := p.complaints.due(textRefused); due {
		from := "unknown"
		if caller, ok := peer.FromContext(ctx); ok && caller.Addr != nil {
			from = caller.Addr.String()
		}
		p.complaints.log.WarnContext(ctx, textRefused, "from", from, "cause", err, "not_logged_before", skipped)
	}
	return err
}
