package commandline

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// listed is a list with a long name and long causes.
func listed() [][]string {
	return [][]string{
		{"MESSAGE", "STATE", "CREATED", "EXCHANGE", "LAST ERROR"},
		{"billing-of-the-north/2026-0001", "abandoned", "4 h ago", "invoices", "dial tcp 10.0.0.7:9000: connection refused"},
		{"orders/1", "dead", "3 h ago", "payments", "NOT_FOUND - no exchange 'payments' in vhost '/'"},
		{},
		{"no more"},
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0: `MESSAGE                          STATE       CREATED   EXCHANGE   LAST ERROR
billing-of-the-north/2026-0001   abandoned   4 h ago   invoices   dial tcp 10.0.0.7:9000: connection refused
orders/1                         dead        3 h ago   payments   NOT_FOUND - no exchange 'payments' in vhost '/'

no more
`,
		100: `MESSAGE                          STATE       CREATED   EXCHANGE   LAST ERROR
billing-of-the-north/2026-0001   abandoned   4 h ago   invoices   dial tcp 10.0.0.7:9000: connection
                                                                  refused
orders/1                         dead        3 h ago   payments   NOT_FOUND - no exchange 'payments'
                                                                  in vhost '/'

no more
`,
		80: `MESSAGE                          STATE       LAST ERROR
billing-of-the-north/2026-0001   abandoned   dial tcp 10.0.0.7:9000: connection
                                             refused
orders/1                         dead        NOT_FOUND - no exchange 'payments'
                                             in vhost '/'

no more
`,
		50: `MESSAGE                          STATE
    LAST ERROR
billing-of-the-north/2026-0001   abandoned
    dial tcp 10.0.0.7:9000: connection refused
orders/1                         dead
    NOT_FOUND - no exchange 'payments' in vhost
    '/'

no more
`,
	} {
		got := string(Screen{Width: width}.Table(listed()))
		if got != want {
			t.Errorf("%d columns: the table is\n%s, want\n%s", width, got, want)
		}
		for line := range strings.Lines(got) {
			if has := utf8.RuneCountInString(line) - 1; width > 0 && has > width {
				t.Errorf("%d columns: a line has %d:\n%s", width, has, line)
			}
		}
	}
}

// A name or an address that is broken cannot be copied.
func TestLongWordsStayWhole(t *testing.T) {
	t.Parallel()
	const page = "https://example.com/findings.md#redis-away"
	got := string(Screen{Width: 30}.Table([][]string{
		{"TROUBLE", "redis", "page: " + page + " and more"},
		{"", "do:", "start it at its own address"},
		{"", "", "page"},
		{"OK", "broker", ""},
	}))
	if want := "TROUBLE   redis\n    page:\n    " + page + "\n    and more\n" +
		"    do: start it at its own\n        address\n    page\nOK        broker\n"; got != want {
		t.Errorf("the table is\n%s, want\n%s", got, want)
	}
}

func TestLongLinesTakeSeveralRows(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"": 1, "0123456789": 1, "0123456789a": 2, red + "0123456789" + plain: 1, strings.Repeat("ü", 21): 3,
	} {
		if got := (Screen{Width: 10}).Rows(line); got != want {
			t.Errorf("%q takes %d rows, want %d", line, got, want)
		}
	}
	if got := (Screen{}).Rows(strings.Repeat("a", 999)); got != 1 {
		t.Errorf("without a terminal a line takes %d rows", got)
	}
}

// A row without a first cell is a row, where it has names: only a single word, such as do:, is a remark.
func TestRowsWithoutFirstCellStayRows(t *testing.T) {
	t.Parallel()
	got := string(Screen{Width: 50}.Table([][]string{
		{"CURRENT", "CONTEXT", "SERVER", "TOKEN FILE"},
		{"*", "production", "coordinator.shop:9090", "production.token"},
		{"", "staging", "staging.shop:9090", "staging.token"},
	}))
	const want = `CURRENT   CONTEXT      SERVER
    TOKEN FILE
*         production   coordinator.shop:9090
    production.token
          staging      staging.shop:9090
    staging.token
`
	if got != want {
		t.Errorf("the table is\n%s, want\n%s", got, want)
	}
}

// The work grows with the text, and not with its square: else a megabyte takes a minute.
func TestLongTextsWrapInOnePass(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("word  ", 200_000)
	for line := range strings.Lines(string(Screen{Width: 80}.Table([][]string{{"error", text}}))) {
		if has := utf8.RuneCountInString(line) - 1; has > 80 {
			t.Fatalf("a line has %d columns: %q", has, line)
		}
	}
}

func TestStatesAndSeveritiesHaveColours(t *testing.T) {
	t.Parallel()
	screen := Screen{Width: 80, Color: true}
	rows := [][]string{
		{"STATE", "COUNT", "EXCHANGE"},
		{"dead", "3", "dead"},
		{"dead", "0", "x"},
		{},
		{"TROUBLE", "redis-away", "WARNING"},
		{},
		{"state", "abandoned"},
	}
	const want = bold + "STATE" + plain + "   " + bold + "COUNT" + plain + "   " + bold + "EXCHANGE" + plain + "\n" +
		red + "dead" + plain + "    3       dead\ndead    0       x\n\n" +
		red + "TROUBLE" + plain + "   redis-away   WARNING\n\nstate   " + yellow + "abandoned" + plain + "\n"
	if got := string(screen.Table(rows)); got != want {
		t.Errorf("the tables are\n%q, want\n%q", got, want)
	}
	screen.Color = false
	if got := string(screen.Table(rows)); strings.Contains(got, "\x1b") {
		t.Errorf("the tables have colours: %q", got)
	}
	for env, want := range map[string]bool{
		"TERM=xterm": true, "TERM=dumb": false, "": false, "TERM=xterm NO_COLOR=1": false, "TERM=xterm NO_COLOR=": true,
	} {
		s := Session{Process: Process{Env: strings.Fields(env)}}
		if got := s.showsColors(); got != want {
			t.Errorf("with %q colours are %v", env, got)
		}
	}
}

// Chinese and Japanese names, and emoji, take two columns for each rune, and accents none.
func TestWideRunesTakeTwoColumns(t *testing.T) {
	t.Parallel()
	rows := [][]string{
		{"MESSAGE", "STATE", "LAST ERROR"},
		{"订单/1001", "dead", "交换机不存在，请检查配置并重试，然后联系管理员"},
		{"cafe\u0301/2", "dead", "NOT_FOUND \U0001F600"},
	}
	want := `MESSAGE     STATE   LAST ERROR
订单/1001   dead    交换机不存在，请检查配置并重试，
                    然后联系管理员
café/2      dead    NOT_FOUND 😀
`
	want = strings.NewReplacer(`\u0301`, "\u0301", `\U0001F600`, "\U0001F600").Replace(want)
	if got := string(Screen{Width: 52}.Table(rows)); got != want {
		t.Errorf("the table is\n%s, want\n%s", got, want)
	}
	if rows := (Screen{Width: 10}).Rows("订单订单订单"); rows != 2 {
		t.Errorf("twelve columns take %d rows of ten", rows)
	}
}

// One long name moves its own row, and pads no other beyond the edge.
func TestLongNamePadsNoOtherRow(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 20)
	table := string(Screen{Width: 40}.Table([][]string{
		{"MESSAGE", "STATE", "LAST ERROR"}, {long, "abandoned", "away"}, {"orders/1", "dead", "away"},
	}))
	want := "MESSAGE                        STATE\n    LAST ERROR\n" + long + " abandoned\n    away\n" +
		"orders/1                       dead\n    away\n"
	if table != want {
		t.Errorf("the table is\n%s, want\n%s", table, want)
	}
}
