// One binary for all commands of the control plane: it is linked once, and the commands share most of their packages.
// It runs the command whose name it was started with.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // for time zones in CronJobs

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers the metrics of clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // registers the metric of the version
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwokctl "sigs.k8s.io/kwok/pkg/kwokctl/cmd"
	_ "sigs.k8s.io/kwok/pkg/kwokctl/runtime/binary" // registers the runtime that starts processes
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

// The files etcd.go and kube_apiserver.go add theirs.
var commands = map[string]func(){
	"kube-controller-manager": func() { os.Exit(cli.Run(controllers.NewControllerManagerCommand())) },
	"kube-scheduler":          func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) },
	"kubectl":                 func() { util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) },
	"kwok":                    func() { runKwok(kwok.NewCommand) },
	"kwok-controller":         func() { runKwok(kwok.NewCommand) }, // kwokctl starts kwok by this name
	"kwokctl":                 func() { runKwok(kwokctl.NewCommand) },
}

func main() {
	name := filepath.Base(os.Args[0])
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s is not a command of the control plane\n", name)
		os.Exit(2)
	}
	command()
}

// kwok reads the flags for its configuration and log before it creates a command.
func runKwok(newCommand func(context.Context) *cobra.Command) {
	// The packages of Kubernetes register flags for every command, and one of them is not kwok's own --version.
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError)
	flags := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ := log.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := config.InitFlags(ctx, flags)
	exitOn(err)
	command := newCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	exitOn(command.ExecuteContext(ctx))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
