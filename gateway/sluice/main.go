// Command sluice is an event-loop edge gateway: a WebSocket relay and an
// encrypting HTTP relay.
package main

import (
	"fmt"
	"os"

	"sluice/gateway"
)

const usage = `usage: sluice COMMAND

  serve         run both roles with the settings of the environment
  check-config  check the settings and exit
  health        ask a running sluice whether it lives
  call          send one encrypted request, like curl: sluice call -h
  version       print the version
`

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	if len(os.Args) > 2 && command != "call" {
		command = "" // nothing else takes arguments
	}
	switch command {
	case "serve":
		os.Exit(gateway.Serve(os.Environ()))
	case "check-config":
		os.Exit(gateway.CheckConfig(os.Environ(), os.Stdout, os.Stderr))
	case "health":
		os.Exit(gateway.Health(os.Environ()))
	case "call":
		os.Exit(gateway.Call(os.Args[2:], os.Stdout, os.Stderr))
	case "version":
		fmt.Println(gateway.Version)
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
}
