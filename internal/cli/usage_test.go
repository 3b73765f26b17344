package cli_test

import (
	"strings"
	"testing"
)

// Wrong usage is reported before any connection or question, with an exit status of its own. No password is printed.
func TestImpossibleValuesAreWrongUsage(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"list --state=done":                   "--state=done: messages stand in",
		"retry --state=gone":                  "--state=gone: messages stand in",
		"tail --state=gone":                   "--state=gone",
		"show 1001":                           "write PRODUCER/ID",
		"dlq list --queue=q --output=text":    "--output must be one of",
		"dlq show 1001 --queue=q":             `"1001" does not name a dead letter; write PRODUCER/ID`,
		"dlq replay 1001 --queue=q":           `"1001" does not name a dead letter`,
		"dlq discard orders/1 1001 --queue=q": `"1001" does not name a dead letter`,

		"outbox ddl --producer=p":                             "missing flags: --dialect",
		"outbox ddl --dialect=mysql":                          "--producer is missing",
		"outbox ddl markers --dialect=mysql --producer=p":     "--producer goes with the outbox",
		"outbox ddl inbox --dialect=mysql --table=a-b":        "is not a plain name",
		"outbox ddl markers --dialect=mysql --table=a-b":      "is not a plain name",
		"outbox ddl --dialect=mysql --producer=p' ":           "names no producer",
		"outbox ddl --dialect=mysql --producer=p --table=a-b": "is not a plain name",
		"outbox migrate":                                             "missing flags: --database=NAME or --dsn=URL",
		"outbox migrate --database=a":                                "the configuration has no outbox.a.dsn",
		"outbox migrate --database=a --producer=p":                   "--producer and --table go with --dsn",
		"outbox migrate --dsn=mysql://u:geheim@h/d":                  "--producer is missing",
		"outbox migrate --dsn=mysql://u:geheim@h --producer=p":       "--dsn names no database",
		"outbox migrate --dsn=u:geheim@tcp(h)/d --producer=p":        "--dsn is not a URL of the scheme",
		"outbox migrate --dsn=mysql://u:geheim@h/d --database=a":     "can't be used together",
		"outbox migrate --dsn=mysql://h/d --producer=p --timeout=0s": "--timeout",

		"token new ci":                          "--file is missing, and the configuration has no access.token_file",
		"token new mh_geheim --file=f":          "the name begins with mh_",
		"token new ci --file=f --producer=a,b":  "--producer=a,b: a producer has",
		"token new ci --file=f --role=root":     "--role must be one of",
		"token new ci --file=f --expires=90":    "write a time from 1s to 3650d",
		"token new ci --file=f --expires=0d":    "write a time from 1s to 3650d",
		"token new ci --file=f --expires=-1d":   "write a time from 1s to 3650d",
		"token new ci --file=f --expires=3651d": "write a time from 1s to 3650d",

		"completion csh":                                               "must be one of",
		"version --output=text":                                        "--output must be one of",
		"serve --log.level=loud":                                       "is none of debug, info, warn, error",
		"serve --delete_business.when=never":                           "is none of before_publish, after_ack",
		"serve --callbacks.allow=b:1 --callbacks.allow=a":              `callbacks.allow = "b:1,a"`,
		"serve --callbacks.allow=a:1 --set=producers.stock.target=b:1": `producers.NAME.target: target of producer stock`,
	} {
		t.Run(typed, func(t *testing.T) {
			t.Parallel()
			got := run([]string{"MSGHANDLER_AMQP_URL=amqp://127.0.0.1:1"}, strings.Fields(typed)...)
			got.want(t, 2, "", want)
			if strings.Contains(got.err, "geheim") {
				t.Errorf("a password came back: %s", got.err)
			}
		})
	}
}
