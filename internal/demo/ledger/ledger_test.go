package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/msghandler/msghandler/internal/demo/ledger"
)

func TestALedgerOutlivesItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.jsonl")
	l, err := ledger.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2"} {
		if err := l.Append(ledger.Entry{ID: id, AmountCents: 5}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Append(ledger.Entry{ID: "1"}); !errors.Is(err, ledger.ErrExists) {
		t.Fatalf("a second entry with the same id: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	// The process dies in the middle of a line.
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"id":"3","amount`); err != nil {
		t.Fatal(err)
	}
	file.Close()

	l, err = ledger.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Has("3") || !l.Has("2") || l.Len() != 2 {
		t.Fatalf("after the crash it holds %d entries", l.Len())
	}
	if err := l.Append(ledger.Entry{ID: "3"}); err != nil {
		t.Fatal(err)
	}
	if entries, err := ledger.Read(path); err != nil || len(entries) != 3 {
		t.Fatalf("read back %v, %v", entries, err)
	}
}

func TestBalanceNamesWhatIsWrong(t *testing.T) {
	orders := map[string]ledger.Entry{"1": {ID: "1", AmountCents: 1}, "2": {ID: "2", AmountCents: 2}, "3": {ID: "3", AmountCents: 3}}
	payments := map[string]ledger.Entry{"1": {ID: "1", AmountCents: 1}, "2": {ID: "2", AmountCents: 9}, "4": {ID: "4"}}
	books := ledger.Balance(orders, payments)
	if books.Balanced() || books.Unpaid[0] != "3" || books.Wrong[0] != "2" || books.Unordered[0] != "4" {
		t.Fatalf("got %+v", books)
	}
	if !ledger.Balance(orders, orders).Balanced() {
		t.Fatal("a ledger does not balance with itself")
	}
}
