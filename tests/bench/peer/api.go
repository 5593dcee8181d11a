package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Tutorial is the parent; the CRD is tests/bench/manifests/crd.yaml.
type Tutorial struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TutorialSpec   `json:"spec"`
	Status            TutorialStatus `json:"status,omitempty"`
}

type TutorialSpec struct {
	Replicas int32 `json:"replicas"`
}

type TutorialStatus struct {
	Phase         string `json:"phase,omitempty"`
	ReadyReplicas int32  `json:"readyReplicas"`
}

type TutorialList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tutorial `json:"items"`
}

func (in *Tutorial) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (in *TutorialList) DeepCopyObject() runtime.Object {
	out := *in
	out.Items = make([]Tutorial, len(in.Items))
	for i := range in.Items {
		out.Items[i] = *in.Items[i].DeepCopyObject().(*Tutorial)
	}
	return &out
}

func addToScheme(scheme *runtime.Scheme) {
	group := schema.GroupVersion{Group: "bench.operator-host.dev", Version: "v1"}
	scheme.AddKnownTypes(group, &Tutorial{}, &TutorialList{})
	metav1.AddToGroupVersion(scheme, group)
}
