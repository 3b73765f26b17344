// The tools of a release need libraries that no other module needs.
module github.com/msghandler/msghandler/internal/release

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	golang.org/x/mod v0.43.0
)
