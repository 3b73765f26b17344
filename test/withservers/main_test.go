package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCommandGetsBrokerAndReturnsStatus(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	t.Setenv("SEEN", seen)
	status, err := run([]string{"--", "sh", "-c", `printf %s "$TEST_RABBITMQ" >"$SEEN"; exit 7`})
	if status != 7 || err != nil {
		t.Fatalf("status %d, %v", status, err)
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("CI") == "true" && len(text) == 0 {
		t.Error("the command saw no broker")
	}
}

func TestUsageWithoutACommand(t *testing.T) {
	if status, err := run([]string{"--"}); status != 2 || err == nil {
		t.Errorf("status %d, %v", status, err)
	}
}
