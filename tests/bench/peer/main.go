// The peer of the benchmark: the tutorial's operator on controller-runtime, written as its users write it.
//
// One StatefulSet for each Tutorial, its pods listed from the cache and pinged, the status patched when it changed,
// everything looked at again after a minute.
package main

import (
	"context"
	"flag"
	"net"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// The same as the plugin's (tests/bench/plugin) and the host's settings.
	workers     = 4
	resync      = 60 * time.Second
	image       = "redis:8.2"
	port        = 6379
	pingTimeout = time.Second
)

type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	tutorial := &Tutorial{}
	if err := r.Get(ctx, request.NamespacedName, tutorial); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !tutorial.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	set, err := r.apply(ctx, tutorial)
	if err != nil {
		return ctrl.Result{}, err
	}
	pods := &corev1.PodList{}
	labels := client.MatchingLabels{"app": tutorial.Name}
	if err := r.List(ctx, pods, client.InNamespace(tutorial.Namespace), labels); err != nil {
		return ctrl.Result{}, err
	}
	status := TutorialStatus{Phase: "Creating", ReadyReplicas: ready(pods.Items)}
	if status.ReadyReplicas == *set.Spec.Replicas {
		status.Phase = "Ready"
	}
	if !equality.Semantic.DeepEqual(status, tutorial.Status) {
		before := tutorial.DeepCopyObject().(*Tutorial)
		tutorial.Status = status
		if err := r.Status().Patch(ctx, tutorial, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: resync}, nil
}

// Creates the StatefulSet, or updates it when it differs.
func (r *reconciler) apply(ctx context.Context, tutorial *Tutorial) (*appsv1.StatefulSet, error) {
	desired := statefulSet(tutorial)
	if err := ctrl.SetControllerReference(tutorial, desired, r.Scheme()); err != nil {
		return nil, err
	}
	live := &appsv1.StatefulSet{}
	err := r.Get(ctx, client.ObjectKeyFromObject(desired), live)
	if apierrors.IsNotFound(err) {
		return desired, r.Create(ctx, desired)
	}
	if err != nil {
		return nil, err
	}
	container, wanted := live.Spec.Template.Spec.Containers[0], desired.Spec.Template.Spec.Containers[0]
	if *live.Spec.Replicas == *desired.Spec.Replicas && container.Image == wanted.Image {
		return live, nil
	}
	live.Spec.Replicas = desired.Spec.Replicas
	live.Spec.Template.Spec.Containers[0].Image = wanted.Image
	return live, r.Update(ctx, live)
}

// How many pods answer.
func ready(pods []corev1.Pod) int32 {
	var count int32
	for i := range pods {
		if ip := pods[i].Status.PodIP; ip != "" && ping(ip) {
			count++
		}
	}
	return count
}

func ping(ip string) bool {
	address := &net.TCPAddr{IP: net.ParseIP(ip), Port: port}
	connection, err := net.DialTimeout("tcp", address.String(), pingTimeout)
	if err != nil {
		return false
	}
	return connection.Close() == nil
}

func statefulSet(tutorial *Tutorial) *appsv1.StatefulSet {
	labels := map[string]string{"app": tutorial.Name}
	replicas := tutorial.Spec.Replicas
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: tutorial.Name, Namespace: tutorial.Namespace, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas:    &replicas,
			ServiceName: tutorial.Name,
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					// The cluster of the benchmark has no nodes: nobody shall look for one.
					SchedulingGates: []corev1.PodSchedulingGate{{Name: "bench.operator-host.dev/no-nodes"}},
					Containers: []corev1.Container{{
						Name:  "redis",
						Image: image,
						Ports: []corev1.ContainerPort{{Name: "redis", ContainerPort: port}},
					}},
				},
			},
		},
	}
}

func main() {
	flag.Parse() // --kubeconfig is controller-runtime's
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		ctrl.Log.Error(err, "the peer has ended")
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1 // no client-side limit
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	addToScheme(scheme)
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Tutorial{}).
		Owns(&appsv1.StatefulSet{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}
